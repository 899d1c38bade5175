import assert from 'node:assert/strict'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import type { TLSSocket } from 'node:tls'
import { cert, key } from '../../fixtures/tls.ts'
import { recordedLog } from '../../support/log.ts'
import { OtlpReceiver } from '../../support/otlp-receiver.ts'
import { until } from '../../support/until.ts'
import { tracedMesh, type MeshSetUp } from './traced-mesh.ts'

/** Sets variables as an operator does: in the process, because the SDK reads most of them there. */
function meshIn(t: TestContext, env: Readonly<Record<string, string>>, setUp: MeshSetUp = {}) {
  Object.assign(process.env, env)
  t.after(() => {
    for (const name in env) Reflect.deleteProperty(process.env, name)
  })
  return tracedMesh(t, { env, ...setUp })
}

test('the SDK reads endpoint, headers, service and attributes', async (t) => {
  const receiver = await OtlpReceiver.start(t)
  const mesh = await meshIn(t, {
    OTEL_EXPORTER_OTLP_ENDPOINT: `${receiver.url}/base`,
    OTEL_EXPORTER_OTLP_HEADERS: 'authorization=Bearer%20token,x-tenant=acme',
    OTEL_SERVICE_NAME: 'edge',
    OTEL_RESOURCE_ATTRIBUTES: 'deployment.environment=staging',
    OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT: '5',
  })
  await mesh.run()
  await mesh.tracing?.close()
  const [span] = receiver.spans
  assert.deepEqual(receiver.paths, ['/base/v1/traces'])
  assert.equal(receiver.headers[0]?.authorization, 'Bearer token')
  assert.equal(receiver.headers[0]?.['x-tenant'], 'acme')
  assert.equal(span?.resource['service.name'], 'edge')
  assert.equal(span?.resource['deployment.environment'], 'staging')
  assert.equal(span?.attributes['mcp.method.name'], 'tools')
})

test('settings for traces alone win, and their endpoint is used unchanged', async (t) => {
  const receiver = await OtlpReceiver.start(t)
  const mesh = await meshIn(t, {
    OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:1',
    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: `${receiver.url}/as/it/is`,
    OTEL_EXPORTER_OTLP_HEADERS: 'x-tenant=all',
    OTEL_EXPORTER_OTLP_TRACES_HEADERS: 'x-tenant=acme',
    OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc',
    OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: 'http/protobuf',
  })
  await mesh.run()
  await mesh.tracing?.close()
  assert.deepEqual(receiver.paths, ['/as/it/is'])
  assert.equal(receiver.headers[0]?.['x-tenant'], 'acme')
  assert.equal(receiver.spans.length, 2)
})

test('batches are as large as a variable says', async (t) => {
  // A long delay, so that a full batch triggers the send.
  const mesh = await meshIn(t, { OTEL_BSP_MAX_EXPORT_BATCH_SIZE: '4', OTEL_BSP_SCHEDULE_DELAY: '60000' })
  for (let i = 0; i < 4; i++) await mesh.run()
  await mesh.receiver.has(8)
  assert.equal(mesh.receiver.paths.length, 2)
})

test('without a variable batches are small, for calls wait while they are written', async (t) => {
  const mesh = await meshIn(t, {})
  for (let i = 0; i < 65; i++) await mesh.run()
  await mesh.receiver.has(128)
  assert.equal(mesh.receiver.paths.length, 1)
  await mesh.spans()
  assert.deepEqual([mesh.receiver.paths.length, mesh.receiver.spans.length], [2, 130])
})

test('a collector that is slow is waited for as long as a variable says', async (t) => {
  const mesh = await meshIn(t, { OTEL_EXPORTER_OTLP_TRACES_TIMEOUT: '50', OTEL_BSP_SCHEDULE_DELAY: '10' })
  mesh.receiver.behaviour = 'hangs'
  await mesh.run()
  await until('the spans are lost', () => mesh.dropped.length > 0, 2_000)
  assert.deepEqual(mesh.dropped, [[2, 'export_failed']])
})

test('metrics and logs are never sent, whatever other programs here send', async (t) => {
  const mesh = await meshIn(t, {
    OTEL_METRICS_EXPORTER: 'otlp',
    OTEL_LOGS_EXPORTER: 'otlp',
    OTEL_METRIC_EXPORT_INTERVAL: '10',
    OTEL_METRIC_EXPORT_TIMEOUT: '10',
    OTEL_BLRP_SCHEDULE_DELAY: '10',
  })
  await mesh.run()
  await mesh.tracing?.close()
  assert.deepEqual(mesh.receiver.paths, ['/v1/traces'])
})

test('messages of the SDK go to our log, and never to the standard output', async (t) => {
  const written = t.mock.method(process.stdout, 'write')
  const { log, lines } = recordedLog()
  const mesh = await meshIn(t, { OTEL_LOG_LEVEL: 'all' }, { log })
  await mesh.run()
  await mesh.tracing?.close()
  assert.ok(lines.some(({ msg }) => String(msg).includes('OTLPExportDelegate items to be sent')))
  const texts = written.mock.calls.map((call) => String(call.arguments[0]))
  assert.deepEqual(
    texts.filter((text) => text.includes('opentelemetry')),
    [],
  )
  assert.equal(process.env.OTEL_LOG_LEVEL, 'all')
})

test('settings that no exporter accepts are logged without their values, and tracing is off', async (t) => {
  const cases: Readonly<Record<string, string>>[] = [
    { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://hush@:no port' },
    { OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc', OTEL_EXPORTER_OTLP_HEADERS: 'authorization=hush%0Ahush' },
  ]
  for (const env of cases) {
    const { log, lines } = recordedLog()
    const mesh = await meshIn(t, env, { log })
    for (const name in env) Reflect.deleteProperty(process.env, name)
    assert.equal(mesh.tracing, undefined)
    assert.equal((await mesh.run()).outcome.kind, 'answered')
    assert.deepEqual(
      lines.map(({ level }) => level),
      [50],
    )
    assert.ok(!JSON.stringify(lines).includes('hush'))
  }
})

test('a collector over TLS is trusted by the certificate that a variable names, and shown that of a client', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'breakwater-collector-'))
  t.after(() => rm(folder, { recursive: true }))
  const [certFile, keyFile] = [join(folder, 'cert.pem'), join(folder, 'key.pem')]
  await writeFile(certFile, cert)
  await writeFile(keyFile, key)
  const clients: boolean[] = []
  const server = createServer(
    { cert, key, ca: cert, requestCert: true, rejectUnauthorized: false },
    (request, response) => {
      clients.push((request.socket as TLSSocket).authorized)
      request.resume().once('end', () => response.end())
    },
  )
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.after(() => {
    server.closeAllConnections()
    server.close()
  })
  const { port } = server.address() as AddressInfo
  const endpoint = { OTEL_EXPORTER_OTLP_ENDPOINT: `https://127.0.0.1:${port}` }
  for (const [variables, authorized] of [
    [{ OTEL_EXPORTER_OTLP_CERTIFICATE: certFile }, false],
    [
      {
        OTEL_EXPORTER_OTLP_CERTIFICATE: keyFile,
        OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE: certFile,
        OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE: certFile,
        OTEL_EXPORTER_OTLP_CLIENT_KEY: keyFile,
      },
      true,
    ],
  ] as const) {
    const mesh = await meshIn(t, { ...endpoint, ...variables })
    await mesh.run()
    await mesh.tracing?.close()
    assert.deepEqual([mesh.exported, mesh.dropped], [[2], []])
    assert.equal(clients.at(-1), authorized)
  }
})
