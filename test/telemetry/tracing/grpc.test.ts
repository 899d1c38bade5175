import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { recordedLog } from '../../support/log.ts'
import { OtlpGrpcReceiver } from '../../support/otlp-grpc-receiver.ts'
import { until } from '../../support/until.ts'
import {
  retrying,
  answered,
  tracedMesh,
  unavailable,
  type MeshSetUp,
  type TracedMesh,
} from './traced-mesh.ts'

/** A mesh that sends its spans over gRPC; the SDK reads the variables from the process's own environment. */
async function grpcMesh(t: TestContext, setUp: MeshSetUp = {}, variables: Record<string, string> = {}) {
  const receiver = await OtlpGrpcReceiver.start(t)
  const env = {
    OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc',
    OTEL_BSP_SCHEDULE_DELAY: '10',
    ...variables,
  }
  Object.assign(process.env, env)
  t.after(() => {
    for (const name in env) Reflect.deleteProperty(process.env, name)
  })
  return { collector: receiver, mesh: await tracedMesh(t, { env, endpoint: receiver.url, ...setUp }) }
}

/** Timeout of an exporter that has to lose its spans, in milliseconds; other exporters keep their default. */
const TIMEOUT_MS = 300
const impatient = { OTEL_EXPORTER_OTLP_TIMEOUT: String(TIMEOUT_MS) }

/** Enough calls to tell a standing process from a process that waits for the collector at each call. */
const MANY = 20

const sum = (numbers: readonly number[]) => numbers.reduce((total, one) => total + one, 0)
const lost = ({ dropped }: TracedMesh) => sum(dropped.map(([count]) => count))

test('spans travel over gRPC where a variable asks for it, with the headers of the environment', async (t) => {
  const { collector, mesh } = await grpcMesh(
    t,
    { settings: retrying, upstream: ({ attempt }) => (attempt === 1 ? unavailable : answered()) },
    { OTEL_EXPORTER_OTLP_HEADERS: 'x-tenant=acme', OTEL_EXPORTER_OTLP_COMPRESSION: 'gzip' },
  )
  await mesh.run()
  const spans = await collector.has(3)
  const [server] = spans.filter(({ kind }) => kind === 'server')
  assert.equal(server?.name, 'tools/call look')
  assert.equal(server?.resource['service.name'], 'breakwater')
  assert.deepEqual(
    spans.filter(({ kind }) => kind === 'client').map(({ parentSpanId }) => parentSpanId),
    [server?.spanId, server?.spanId],
  )
  const [request] = collector.requests
  assert.equal(request?.[':path'], '/opentelemetry.proto.collector.trace.v1.TraceService/Export')
  assert.equal(request?.['x-tenant'], 'acme')
  await until('they are counted', () => sum(mesh.exported) === 3)
  assert.deepEqual(mesh.dropped, [])
})

test('an endpoint of the environment needs no scheme over gRPC', async (t) => {
  const collector = await OtlpGrpcReceiver.start(t)
  const { mesh } = await grpcMesh(
    t,
    { endpoint: 'http://127.0.0.1:1' },
    {
      OTEL_EXPORTER_OTLP_ENDPOINT: `127.0.0.1:${collector.port}`,
      OTEL_EXPORTER_OTLP_INSECURE: 'true',
    },
  )
  await mesh.run()
  await collector.has(2)
})

test('a collector that is down, refuses or hangs over gRPC costs no call anything: the spans are lost, and counted', async (t) => {
  for (const trouble of ['down', 'refuses', 'hangs'] as const) {
    const { log, lines } = recordedLog()
    const { collector, mesh } = await grpcMesh(
      t,
      { log },
      { ...impatient, OTEL_EXPORTER_OTLP_HEADERS: 'authorization=hush' },
    )
    if (trouble === 'down') collector.close()
    if (trouble === 'refuses') collector.behaviour = { status: 16, message: 'who are you?' }
    if (trouble === 'hangs') collector.behaviour = 'hangs'
    const startedAt = performance.now()
    for (let i = 0; i < MANY; i++) assert.equal((await mesh.run()).outcome.kind, 'answered')
    assert.ok(performance.now() - startedAt < (MANY * TIMEOUT_MS) / 2, 'the calls waited for the collector')
    await until('the spans are lost', () => lost(mesh) === 2 * MANY)
    assert.ok(mesh.dropped.every(([, cause]) => cause === 'export_failed'))
    assert.deepEqual(mesh.exported, [])
    assert.equal(lines.length, 1)
    assert.ok(!JSON.stringify(lines).includes('hush'))
  }
})

test('a collector that comes back gets what follows', async (t) => {
  const { collector, mesh } = await grpcMesh(t)
  collector.behaviour = { status: 14, message: 'starting' }
  await mesh.run()
  await until('the spans are lost', () => lost(mesh) === 2)
  collector.behaviour = 'takes'
  await mesh.run()
  await collector.has(2)
})
