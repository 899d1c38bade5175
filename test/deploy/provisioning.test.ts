import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { parse } from 'yaml'
import { deployFolder } from '../../deploy/paths.ts'

interface Compose {
  readonly services: Readonly<
    Record<string, { ports?: string[]; volumes?: string[]; environment?: Record<string, string> }>
  >
}

interface Datasources {
  readonly datasources: readonly {
    readonly type: string
    readonly url: string
    readonly jsonData?: { readonly exemplarTraceIdDestinations?: readonly { name: string; url: string }[] }
  }[]
}

const read = (path: string): unknown => parse(readFileSync(deployFolder + path, 'utf8'))
const { services } = read('compose.yaml') as Compose
const { datasources } = read('grafana/provisioning/datasources/breakwater.yaml') as Datasources
const { providers } = read('grafana/provisioning/dashboards/breakwater.yaml') as {
  providers: { options: { path: string } }[]
}

test('Grafana asks services that compose starts', () => {
  for (const { type, url } of datasources) assert.ok(new URL(url).hostname in services, type)
})

test('the gateway sends its spans to where Grafana finds them', () => {
  const traces = datasources.find(({ type }) => type === 'jaeger')
  const collector = services.gateway?.environment?.OTEL_EXPORTER_OTLP_ENDPOINT ?? ''
  assert.equal(new URL(collector).hostname, new URL(traces?.url ?? '').hostname)
})

test('dots on a panel lead to a trace, at a port that compose opens, by the label that exemplars have', () => {
  const prometheus = datasources.find(({ type }) => type === 'prometheus')
  const [destination, ...more] = prometheus?.jsonData?.exemplarTraceIdDestinations ?? []
  assert.deepEqual(more, [])
  assert.equal(destination?.name, 'trace_id')
  // Grafana expands environment variables first, and reads `$$` as `$`.
  const [, port] =
    /^http:\/\/127\.0\.0\.1:(\d+)\/trace\/\$\$\{__value\.raw\}$/.exec(destination?.url ?? '') ?? []
  assert.ok(services.traces?.ports?.includes(`127.0.0.1:${port}:${port}`))
})

test('dashboards are mounted where Grafana looks for them', () => {
  const mounted = services.grafana?.volumes?.map((volume) => volume.split(':')[1])
  for (const { options } of providers) assert.ok(mounted?.includes(options.path))
  const home = services.grafana?.environment?.GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH ?? ''
  const [, file] = /^\/var\/lib\/breakwater-dashboards\/(.*)$/.exec(home) ?? []
  assert.ok(readFileSync(`${deployFolder}grafana/dashboards/${file}`, 'utf8').includes('breakwater-overview'))
})
