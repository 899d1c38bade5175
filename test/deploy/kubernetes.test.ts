import assert from 'node:assert/strict'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { parse, parseAllDocuments } from 'yaml'
import { deployFolder } from '../../deploy/paths.ts'
import { formatIssue } from '../../src/config/issues/issues.ts'
import { loadConfig } from '../../src/config/load.ts'
import { parseAddress } from '../../src/units/address.ts'

interface Probe {
  readonly httpGet: { readonly path: string; readonly port: string }
}

interface Container {
  readonly args: readonly string[]
  readonly env: readonly { readonly name: string; readonly valueFrom: { readonly secretKeyRef: SecretKey } }[]
  readonly ports: readonly { readonly name: string; readonly containerPort: number }[]
  readonly startupProbe: Probe
  readonly livenessProbe: Probe
  readonly readinessProbe: Probe
  readonly lifecycle: { readonly preStop: { readonly exec: { readonly command: readonly string[] } } }
  readonly volumeMounts: readonly {
    readonly name: string
    readonly mountPath: string
    readonly subPath?: string
  }[]
}

interface SecretKey {
  readonly name: string
  readonly key: string
}

interface Pod {
  readonly terminationGracePeriodSeconds: number
  readonly containers: readonly [Container]
  readonly volumes: readonly { readonly name: string; readonly configMap?: { readonly name: string } }[]
}

interface Labels {
  readonly [name: string]: string
}

interface Manifest {
  readonly kind: string
  readonly metadata: { readonly name: string; readonly labels: Labels }
}

interface ConfigMap extends Manifest {
  readonly data: { readonly 'gateway.yaml': string }
}

interface Deployment extends Manifest {
  readonly spec: {
    readonly selector: { readonly matchLabels: Labels }
    readonly template: { readonly metadata: { readonly labels: Labels }; readonly spec: Pod }
  }
}

interface Service extends Manifest {
  readonly spec: {
    readonly selector: Labels
    readonly ports: readonly { readonly name: string; readonly port: number; readonly targetPort: string }[]
  }
}

interface ServiceMonitor extends Manifest {
  readonly spec: {
    readonly selector: { readonly matchLabels: Labels }
    readonly endpoints: readonly [
      {
        readonly port: string
        readonly path: string
        readonly authorization: { readonly credentials: SecretKey }
      },
    ]
  }
}

const manifests = parseAllDocuments(await readFile(`${deployFolder}kubernetes/breakwater.yaml`, 'utf8')).map(
  (document) => {
    assert.deepEqual(document.errors, [])
    return document.toJS() as Manifest
  },
)
const monitor = parse(
  await readFile(`${deployFolder}kubernetes/service-monitor.yaml`, 'utf8'),
) as ServiceMonitor

function only<Kind extends Manifest>(kind: string): Kind {
  const [found, ...others] = manifests.filter((manifest) => manifest.kind === kind)
  assert.ok(found !== undefined && others.length === 0, kind)
  return found as Kind
}

const configMap = only<ConfigMap>('ConfigMap')
const deployment = only<Deployment>('Deployment')
const service = only<Service>('Service')
const { labels } = deployment.spec.template.metadata
const pod = deployment.spec.template.spec
const [container] = pod.containers

const folder = await mkdtemp(join(tmpdir(), 'breakwater-kubernetes-'))
after(() => rm(folder, { recursive: true }))
const file = join(folder, 'gateway.yaml')
await writeFile(file, configMap.data['gateway.yaml'])
const token = container.env.map(({ name }) => [name, 'a-token-of-enough-letters'] as const)
const loaded = await loadConfig(file, Object.fromEntries(token))
assert.ok(loaded.ok, loaded.ok ? '' : loaded.errors.map(formatIssue).join('\n'))
const { gateway } = loaded.config
const portOf = (address: string) => parseAddress(address)?.port

test('the config of the manifest is valid, with the variables of the container', () => {
  assert.deepEqual(loaded.warnings.map(formatIssue), [])
})

test('ports of the container and of the service are those of the config', () => {
  const expected = { mcp: portOf(gateway.listen), control: portOf(gateway.control) }
  const named = container.ports.map(({ name, containerPort }) => [name, containerPort] as const)
  assert.deepEqual(Object.fromEntries(named), expected)
  const offered = service.spec.ports.map(({ port, targetPort }) => [targetPort, port] as const)
  assert.deepEqual(Object.fromEntries(offered), expected)
})

test('probes ask the agents’ plane for paths that it answers', () => {
  const { startupProbe, livenessProbe, readinessProbe } = container
  for (const { httpGet } of [startupProbe, livenessProbe, readinessProbe]) assert.equal(httpGet.port, 'mcp')
  const paths = [startupProbe, livenessProbe, readinessProbe].map(({ httpGet }) => httpGet.path)
  assert.deepEqual(paths, ['/livez', '/livez', '/readyz'])
})

/** Longest end of a gateway after its drain, in seconds; deploy/compose.yaml counts the same. */
const LONGEST_END_S = 5.5

test('the pod has more time to end than the pause before it, the drain and the end together', () => {
  const [, pause] = container.lifecycle.preStop.exec.command
  assert.ok(pod.terminationGracePeriodSeconds > Number(pause) + gateway.drain / 1_000 + LONGEST_END_S)
})

test('the config is mounted as a folder where the command looks for it, so that changes arrive', () => {
  const volume = pod.volumes.find(({ configMap: from }) => from?.name === configMap.metadata.name)
  const mount = container.volumeMounts.find(({ name }) => name === volume?.name)
  assert.equal(mount?.subPath, undefined)
  assert.deepEqual(container.args, ['start', '--config', `${mount?.mountPath}/gateway.yaml`])
  assert.ok(container.volumeMounts.some(({ mountPath }) => mountPath === gateway.stateDir))
})

test('deployment, service and monitor mean the same pods, port and token', () => {
  assert.deepEqual(deployment.spec.selector.matchLabels, labels)
  assert.deepEqual(service.spec.selector, labels)
  assert.deepEqual(monitor.spec.selector.matchLabels, service.metadata.labels)
  const [{ port, path, authorization }] = monitor.spec.endpoints
  assert.equal(path, '/metrics')
  assert.ok(service.spec.ports.some(({ name, targetPort }) => name === port && targetPort === 'control'))
  assert.deepEqual(authorization.credentials, container.env[0]?.valueFrom.secretKeyRef)
})
