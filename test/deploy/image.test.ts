import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { parse } from 'yaml'
import { loadConfig } from '../../src/config/load.ts'
import { deployFolder } from '../../deploy/paths.ts'

interface Service {
  readonly image?: string
  readonly build?: { readonly context: string; readonly dockerfile: string; readonly target?: string }
  readonly command?: readonly string[]
  readonly volumes?: readonly string[]
  readonly ports?: readonly string[]
}

interface Compose {
  readonly services: Readonly<Record<string, Service>>
  readonly volumes: Readonly<Record<string, unknown>>
}

const compose = parse(readFileSync(`${deployFolder}compose.yaml`, 'utf8')) as Compose
const services = Object.entries(compose.services)

const { engines, dependencies } = JSON.parse(
  readFileSync(join(deployFolder, '..', 'package.json'), 'utf8'),
) as { engines: { node: string }; dependencies: Readonly<Record<string, string>> }

/** All instructions of the Dockerfile with continued lines joined, and the instructions of its last stage. */
const instructions = readFileSync(`${deployFolder}Dockerfile`, 'utf8')
  .replace(/\\\n\s*/g, '')
  .split('\n')
  .filter((line) => /^[A-Z]+ /.test(line))
const final = instructions.slice(instructions.findLastIndex((line) => line.startsWith('FROM ')))
const argumentOf = (name: string) =>
  final.findLast((line) => line.startsWith(`${name} `))?.slice(name.length + 1)

test('every mount of compose is in the checkout or a separate volume', () => {
  for (const [name, { volumes = [], build }] of services) {
    for (const volume of volumes) {
      const [from = ''] = volume.split(':')
      const exists = from.startsWith('.') ? existsSync(join(deployFolder, from)) : from in compose.volumes
      assert.ok(exists, `${name}: ${volume}`)
    }
    if (build !== undefined) assert.ok(existsSync(join(deployFolder, build.context, build.dockerfile)), name)
  }
})

test('images of others are pinned to a version, and name no registry', () => {
  for (const [name, { image }] of services)
    if (image !== undefined) assert.match(image, /^[a-z]+(\/[a-z]+)?:v?\d+\.\d+\.\d+$/, name)
})

test('the base image is named once, by an exact version and its digest, and is a Node that this project supports', () => {
  const pinned = instructions.flatMap((line) => /^ARG NODE=(.*)$/.exec(line)?.[1] ?? [])
  assert.equal(pinned.length, 1)
  const [, version = ''] = /^node:(\d+\.\d+\.\d+)-slim@sha256:[0-9a-f]{64}$/.exec(pinned[0] ?? '') ?? []
  assert.notEqual(version, '', pinned[0])
  const [major = 0, minor = 0] = version.split('.').map(Number)
  const supported = engines.node.split(' || ').map((range) => range.slice(1).split('.').map(Number))
  assert.ok(
    supported.some(([least, leastMinor = 0]) => least === major && minor >= leastMinor),
    version,
  )
  const stages = new Set(instructions.flatMap((line) => /^FROM \S+ AS (\S+)$/.exec(line)?.[1] ?? []))
  for (const line of instructions) {
    const [, from] = /^FROM (\S+)/.exec(line) ?? []
    if (from !== undefined) assert.ok(from === '${NODE}' || stages.has(from), line)
  }
})

test('compose builds existing stages, and without a name the last stage, the gateway', () => {
  const stages = instructions.flatMap((line) => /^FROM \S+ AS (\S+)$/.exec(line)?.[1] ?? [])
  assert.equal(stages.at(-1), 'gateway')
  for (const [name, { build }] of services)
    if (build?.target !== undefined) assert.ok(stages.includes(build.target), name)
})

test('packages for trying the gateway are no production dependencies', () => {
  for (const name of Object.keys(dependencies)) assert.doesNotMatch(name, /^@modelcontextprotocol\/server-/)
})

test('ports are those of loopback only', () => {
  for (const [name, { ports = [] }] of services)
    for (const port of ports) assert.match(port, /^127\.0\.0\.1:\d+:\d+$/, name)
})

test('Prometheus keeps exemplars, loads all rules, and has the token that the control plane demands', () => {
  const { command = [], volumes = [] } = compose.services.prometheus as Service
  assert.ok(command.includes('--enable-feature=exemplar-storage'))
  assert.ok(volumes.some((volume) => volume.startsWith('./prometheus/rules:/etc/prometheus/rules')))
  const config = readFileSync(`${deployFolder}prometheus/prometheus.yaml`, 'utf8')
  const { scrape_configs: scraped } = parse(config) as {
    scrape_configs: { authorization: { credentials_file: string } }[]
  }
  assert.equal(scraped[0]?.authorization.credentials_file, '/run/secrets/control-token')
})

test('the image runs as an ordinary user, gets signals itself, and reports its health', () => {
  assert.equal(argumentOf('USER'), 'node')
  assert.deepEqual(JSON.parse(argumentOf('ENTRYPOINT') ?? ''), ['node', 'dist/main.js'])
  const command = JSON.parse(argumentOf('CMD') ?? '') as string[]
  assert.equal(command[0], 'start')
  const health = argumentOf('HEALTHCHECK')?.replace(/^.*?CMD /, '') ?? ''
  assert.match(
    (JSON.parse(health) as string[]).join(' '),
    /^node -e fetch\('http:\/\/127\.0\.0\.1:8080\/livez'\)/,
  )
})

test('tools of developers stay out of the image', () => {
  assert.ok(instructions.some((line) => line.includes('npm prune --omit=dev')))
  for (const line of final) assert.doesNotMatch(line, /^(COPY|ADD) (?!--from=build )/)
})

test('files copied into the image pass the filter of its build context', () => {
  const ignored = readFileSync(`${deployFolder}Dockerfile.dockerignore`, 'utf8')
  const passed = ignored.split('\n').flatMap((line) => /^!(.+)$/.exec(line)?.[1] ?? [])
  const copied = instructions
    .filter((line) => /^COPY (?!--from)/.test(line))
    .flatMap((line) => line.split(' ').slice(1, -1))
  assert.deepEqual(passed.toSorted(), copied.toSorted())
  assert.ok(copied.includes('config/scenarios'), 'the command scenario reads its library there')
  assert.ok(copied.includes('config/workloads'), 'the command compare has its workload there')
})

test('the config mounted by compose is valid, and its servers are services of compose', async () => {
  const loaded = await loadConfig(`${deployFolder}config/gateway.yaml`, {
    CONTROL_TOKEN: 'a-token-of-24-characters',
  })
  assert.deepEqual(loaded.ok ? loaded.warnings : loaded.errors, [])
  assert.ok(loaded.ok)
  for (const [name, server] of Object.entries(loaded.config.mcpServers)) {
    const urls = 'urls' in server ? server.urls : []
    assert.ok(urls.length > 0, `${name} would have to be in the image`)
    for (const url of urls) assert.ok(new URL(url).hostname in compose.services, url)
  }
})
