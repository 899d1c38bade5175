import assert from 'node:assert/strict'
import { test } from 'node:test'
import { systemClock } from '../../../src/mesh/clock.ts'
import { createTracing } from '../../../src/telemetry/tracing.ts'
import { readMetricsSettings, readSettings } from '../../../src/telemetry/tracing/settings.ts'
import { recordedLog, silent } from '../../support/log.ts'
import { tracedMesh } from './traced-mesh.ts'

const config = { sample: 0.1, payloads: false }
const there = { ...config, endpoint: 'http://collector:4318' }

test('tracing is off without an endpoint, and wherever a variable says so; then nothing stands in the way', async () => {
  const off = [
    [{}, config],
    [{ OTEL_EXPORTER_OTLP_ENDPOINT: ' ' }, config],
    [{ OTEL_SDK_DISABLED: 'true' }, there],
    [{ OTEL_TRACES_EXPORTER: 'none' }, there],
  ] as const
  for (const [env, given] of off) {
    const tracing = await createTracing({
      clock: systemClock,
      log: silent,
      env,
      config: given,
      version: '1',
      counts: { exported: () => undefined, dropped: () => undefined },
      isListed: () => true,
      peerOf: () => undefined,
      conceal: (_, text) => text,
    })
    assert.equal(tracing, undefined)
  }
})

test('an endpoint of the environment wins, and is left to the SDK', () => {
  for (const name of ['OTEL_EXPORTER_OTLP_ENDPOINT', 'OTEL_EXPORTER_OTLP_TRACES_ENDPOINT'])
    assert.equal(readSettings({ [name]: 'http://other:4318' }, there)?.url, undefined)
})

test('an endpoint of the config gets the path of the protocol, unless it has one', () => {
  const urlOf = (endpoint: string, env = {}) => readSettings(env, { ...config, endpoint })?.url
  assert.equal(urlOf('http://collector:4318'), 'http://collector:4318/v1/traces')
  assert.equal(urlOf('http://collector:4318/'), 'http://collector:4318/v1/traces')
  assert.equal(urlOf('https://collector/otlp/v1/traces'), 'https://collector/otlp/v1/traces')
  assert.equal(
    urlOf('http://collector:4317', { OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc' }),
    'http://collector:4317/',
  )
})

test('all samplers of the specification are known', () => {
  const cases = [
    ['always_on', undefined, 1, false],
    ['always_off', undefined, 0, false],
    ['traceidratio', '0.25', 0.25, false],
    ['parentbased_always_on', undefined, 1, true],
    ['parentbased_always_off', undefined, 0, true],
    ['parentbased_traceidratio', '0.5', 0.5, true],
    ['parentbased_traceidratio', '7', 1, true],
  ] as const
  for (const [name, argument, rate, parentBased] of cases) {
    const env = { OTEL_TRACES_SAMPLER: name, OTEL_TRACES_SAMPLER_ARG: argument }
    assert.deepEqual(readSettings(env, there)?.sample, { rate, parentBased })
  }
  assert.deepEqual(readSettings({}, there)?.sample, { rate: 0.1, parentBased: true })
})

test('an unknown value of a variable is named, and skipped', async (t) => {
  const env = {
    OTEL_TRACES_SAMPLER: 'sometimes',
    OTEL_TRACES_EXPORTER: 'pigeon',
    OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: 'morse',
    OTEL_BSP_MAX_QUEUE_SIZE: '-1',
  }
  const { log, lines } = recordedLog()
  const mesh = await tracedMesh(t, { env, log })
  await mesh.run()
  assert.equal((await mesh.spans()).length, 2)
  assert.deepEqual(lines.map(({ variable }) => variable).sort(), Object.keys(env).sort())
})

test('an invalid share is named', () => {
  const env = { OTEL_TRACES_SAMPLER: 'traceidratio', OTEL_TRACES_SAMPLER_ARG: 'a tenth' }
  assert.deepEqual(readSettings(env, there)?.ignored, ['OTEL_TRACES_SAMPLER_ARG'])
  assert.deepEqual(readSettings({ OTEL_TRACES_SAMPLER: 'traceidratio' }, there)?.ignored, [])
})

test('JSON is spoken where a variable asks for it', async (t) => {
  const { createServer } = await import('node:http')
  const bodies: unknown[] = []
  const server = createServer((request, response) => {
    let text = ''
    request.on('data', (chunk) => (text += chunk))
    request.on('end', () => (bodies.push(JSON.parse(text)), response.end('{}')))
  }).listen(0, '127.0.0.1')
  await new Promise((resolve) => server.once('listening', resolve))
  t.after(() => server.close())
  const { port } = server.address() as { port: number }
  const mesh = await tracedMesh(t, {
    env: { OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json' },
    endpoint: `http://127.0.0.1:${port}`,
  })
  await mesh.run()
  await mesh.tracing?.close()
  server.closeAllConnections()
  assert.equal(bodies.length, 1)
})

test('metrics are sent where that is asked for, and not merely because spans are', () => {
  const collector = 'http://collector:4318'
  const off = { semanticConventions: true }
  const general = { OTEL_EXPORTER_OTLP_ENDPOINT: collector }
  for (const env of [
    {},
    general,
    { OTEL_METRICS_EXPORTER: 'otlp' },
    { ...general, OTEL_METRICS_EXPORTER: 'none' },
    { ...general, OTEL_METRICS_EXPORTER: 'otlp', OTEL_SDK_DISABLED: 'true' },
  ])
    assert.equal(readMetricsSettings(env, off), undefined)
  const byDefault = { protocol: 'http/protobuf', intervalMs: 60_000, ignored: [] }
  const left = { ...byDefault, url: undefined }
  assert.deepEqual(readMetricsSettings({ ...general, OTEL_METRICS_EXPORTER: 'otlp' }, off), left)
  assert.deepEqual(readMetricsSettings({ OTEL_EXPORTER_OTLP_METRICS_ENDPOINT: collector }, off), left)
  const here = { ...off, endpoint: collector }
  assert.deepEqual(readMetricsSettings({}, here), { ...byDefault, url: `${collector}/v1/metrics` })
  assert.deepEqual(readMetricsSettings(general, here), left)
  assert.equal(readMetricsSettings({ OTEL_METRICS_EXPORTER: 'none' }, here), undefined)
})

test('an unknown value of a variable for metrics is named, and skipped', () => {
  const env = {
    OTEL_METRICS_EXPORTER: 'pigeon',
    OTEL_EXPORTER_OTLP_METRICS_PROTOCOL: 'morse',
    OTEL_METRIC_EXPORT_INTERVAL: '0',
    OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE: 'delta',
  }
  const read = readMetricsSettings(env, { semanticConventions: false, endpoint: 'http://collector:4318' })
  assert.deepEqual([read?.protocol, read?.intervalMs], ['http/protobuf', 60_000])
  assert.deepEqual(read?.ignored.toSorted(), Object.keys(env).toSorted())
})
