import assert from 'node:assert/strict'
import { pbkdf2 } from 'node:crypto'
import { promisify } from 'node:util'
import { afterEach, beforeEach, test } from 'node:test'
import { createMetrics } from '../../../src/telemetry/metrics.ts'
import { startMetricsExport } from '../../../src/telemetry/tracing/metrics-export.ts'
import { recordedLog } from '../../support/log.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { OtlpReceiver } from '../../support/otlp-receiver.ts'
import { until } from '../../support/until.ts'
import { tracedMesh, type MeshSetUp, type TracedMesh } from './traced-mesh.ts'

/** The SDK reads this from the process's own environment. */
const DELAY = 'OTEL_BSP_SCHEDULE_DELAY'
const TIMEOUT = 'OTEL_EXPORTER_OTLP_TIMEOUT'

beforeEach(() => void (process.env[DELAY] = '10'))
afterEach(() => {
  for (const name of [DELAY, TIMEOUT]) Reflect.deleteProperty(process.env, name)
})

/** How long an impatient exporter waits for the collector, in milliseconds. This process may stall for no longer. */
const TIMEOUT_MS = 300

/** Makes exporters give up soon in tests that lose spans. Other tests use the exporter's default timeout. */
const beImpatient = () => void (process.env[TIMEOUT] = String(TIMEOUT_MS))

const QUEUE = 8
const smallQueue: MeshSetUp = { env: { OTEL_BSP_MAX_QUEUE_SIZE: String(QUEUE) } }

/** Sends sequential calls; every call has to be answered. */
async function sendAll(mesh: TracedMesh, count: number): Promise<void> {
  for (let i = 0; i < count; i++) assert.equal((await mesh.run()).outcome.kind, 'answered')
}

/** Enough calls to tell a standing process from a process that waits for the collector at each call. */
const MANY = 20

/** Sends many calls with a useless collector; no call may wait for the collector. */
async function sendMany(mesh: TracedMesh): Promise<void> {
  const startedAt = performance.now()
  await sendAll(mesh, MANY)
  assert.ok(performance.now() - startedAt < (MANY * TIMEOUT_MS) / 2, 'the calls waited for the collector')
}

const sum = (numbers: readonly number[]) => numbers.reduce((total, one) => total + one, 0)
const lost = ({ dropped }: TracedMesh) => sum(dropped.map(([count]) => count))

test('spans that the collector took are counted, and sent to the path of the protocol', async (t) => {
  const mesh = await tracedMesh(t)
  await sendAll(mesh, 3)
  await mesh.receiver.has(6)
  await until('they are counted', () => sum(mesh.exported) === 6)
  assert.deepEqual(mesh.dropped, [])
  assert.ok(mesh.receiver.paths.every((path) => path === '/v1/traces'))
})

test('a collector that is down costs no call anything: the spans are lost, and counted', async (t) => {
  beImpatient()
  const mesh = await tracedMesh(t)
  mesh.receiver.close()
  await sendMany(mesh)
  await until('the spans are lost', () => lost(mesh) === 2 * MANY)
  assert.ok(mesh.dropped.every(([, cause]) => cause === 'export_failed'))
  assert.deepEqual(mesh.exported, [])
})

test('a collector that never answers keeps a bounded number of spans waiting, and the others are counted at once', async (t) => {
  beImpatient()
  const mesh = await tracedMesh(t, smallQueue)
  mesh.receiver.behaviour = 'hangs'
  await sendMany(mesh)
  assert.ok(lost(mesh) >= 2 * MANY - QUEUE, `${lost(mesh)} are counted`)
  assert.ok(mesh.dropped.some(([, cause]) => cause === 'queue_full'))
  await until('waiting spans are lost too', () => lost(mesh) === 2 * MANY)
  mesh.receiver.behaviour = 'takes'
  // Its exporter is impatient, so some spans may still be lost.
  await until('the collector gets later spans', async () => {
    await sendAll(mesh, 1)
    return mesh.receiver.spans.length > 0
  })
})

test('a refusing collector is logged, once a minute at most', async (t) => {
  beImpatient()
  const { log, lines } = recordedLog()
  const mesh = await tracedMesh(t, { log })
  for (const [status, lostBefore, told] of [
    [400, 0, 1],
    [503, 2, 1],
    [401, 4, 2],
  ] as const) {
    mesh.receiver.behaviour = { status }
    if (told === 2) await mesh.clock.advance(60_000)
    await sendAll(mesh, 1)
    await until('the spans are lost', () => lost(mesh) === lostBefore + 2)
    assert.equal(lines.length, told)
  }
  assert.deepEqual(
    lines.map(({ level, spans }) => [level, spans]),
    [
      [40, 2],
      [40, 4],
    ],
  )
})

test('a collector that echoes its input gets nothing into the log', async (t) => {
  Object.assign(process.env, {
    OTEL_EXPORTER_OTLP_HEADERS: 'authorization=Bearer%20hush',
    OTEL_LOG_LEVEL: 'all',
  })
  t.after(() => {
    Reflect.deleteProperty(process.env, 'OTEL_EXPORTER_OTLP_HEADERS')
    Reflect.deleteProperty(process.env, 'OTEL_LOG_LEVEL')
  })
  const { log, lines } = recordedLog()
  const mesh = await tracedMesh(t, { log, env: { OTEL_LOG_LEVEL: 'all' } })
  mesh.receiver.behaviour = { status: 401 }
  await sendAll(mesh, 1)
  await until('the spans are lost', () => lost(mesh) === 2)
  await until('the SDK logs the loss too', () => lines.some(({ level }) => level === 50))
  assert.equal(mesh.receiver.headers[0]?.authorization, 'Bearer hush')
  assert.ok(!JSON.stringify(lines).includes('hush'))
  const told = lines.find(({ spans }) => spans === 2)
  assert.deepEqual([told?.level, told?.error, told?.code], [40, 'Unauthorized', 401])
})

test('a collector with endless answers is disconnected, and gets later spans when healthy again', async (t) => {
  beImpatient()
  const mesh = await tracedMesh(t, smallQueue)
  mesh.receiver.behaviour = 'drips'
  await sendAll(mesh, 1)
  await until('the collector was asked', () => mesh.receiver.paths.length === 1)
  await mesh.clock.advance(29_999)
  assert.equal(sum(mesh.exported) + lost(mesh), 0)
  // Spans answered with 200 count as exported; unanswered spans are sent once more, in vain.
  await until('the export has ended', async () => {
    await mesh.clock.advance(30_000)
    return sum(mesh.exported) + lost(mesh) === 2
  })
  mesh.receiver.behaviour = 'takes'
  await sendAll(mesh, 1)
  await mesh.receiver.has(2)
})

test('spans lost to a full queue are logged, too', async (t) => {
  beImpatient()
  const { log, lines } = recordedLog()
  const mesh = await tracedMesh(t, { ...smallQueue, log })
  mesh.receiver.behaviour = 'hangs'
  await sendAll(mesh, MANY)
  assert.deepEqual(
    lines.map(({ level, cause }) => [level, cause]),
    [[40, 'queue_full']],
  )
})

test('the end sends what waits', async (t) => {
  process.env[DELAY] = '60000'
  const mesh = await tracedMesh(t)
  await sendAll(mesh, 300)
  await mesh.tracing?.close()
  assert.equal(mesh.receiver.spans.length, 600)
  assert.equal(sum(mesh.exported), 600)
})

test('the end sends a batch that still waits for the name of its host, which the SDK reads meanwhile', async (t) => {
  process.env[DELAY] = '0'
  // Loads the modules now.
  await tracedMesh(t)
  // File reads wait for one of four threads.
  const threads = Array.from({ length: 4 }, () => promisify(pbkdf2)('x', 'y', 1_000_000, 64, 'sha512'))
  const mesh = await tracedMesh(t)
  await sendAll(mesh, 1)
  // The SDK takes the batch when its timer fires.
  await new Promise((resolve) => setTimeout(resolve, 20))
  await mesh.tracing?.close()
  await Promise.all(threads)
  assert.deepEqual([sum(mesh.exported), mesh.dropped], [2, []])
})

test('the end waits for a collector that hangs no longer than three seconds, and counts each span once', async (t) => {
  const { log, lines } = recordedLog()
  const mesh = await tracedMesh(t, { log })
  mesh.receiver.behaviour = 'hangs'
  await sendAll(mesh, 3)
  let closed = false
  const closing = mesh.tracing?.close().then(() => (closed = true))
  await mesh.clock.advance(2_999)
  assert.deepEqual({ closed, dropped: mesh.dropped }, { closed: false, dropped: [] })
  await mesh.clock.advance(1)
  await closing
  assert.deepEqual(mesh.dropped, [[6, 'shutdown']])
  assert.deepEqual(
    lines.map(({ level, spans }) => [level, spans]),
    [[40, 6]],
  )
  mesh.receiver.close()
  await new Promise((resolve) => setTimeout(resolve, 20))
  assert.deepEqual(mesh.dropped, [[6, 'shutdown']])
})

test('the last metrics are logged as lost if the collector hangs or refuses', async (t) => {
  for (const behaviour of ['hangs', { status: 400 }] as const) {
    const { log, lines } = recordedLog()
    const clock = new ManualClock()
    const receiver = await OtlpReceiver.start(t)
    receiver.behaviour = behaviour
    const metrics = createMetrics()
    const known = {
      mcp_protocol_version: '2025-11-25',
      network_transport: 'tcp',
      network_protocol_name: 'http',
    }
    metrics.serverSessions.series({ ...known, error_type: '', breakwater_server: '' }).observe(1)
    const settings = {
      protocol: 'http/protobuf',
      url: receiver.url,
      intervalMs: 60_000,
      ignored: [],
    } as const
    const sending = await startMetricsExport(settings, { clock, log, metrics, env: {}, version: '0' })
    const closed = sending.close()
    await until('the metrics are sent', () => receiver.paths.length > 0)
    await clock.advance(3_000)
    await closed
    assert.deepEqual(
      lines.map(({ level }) => level),
      [40],
    )
    assert.match(String(lines[0]?.msg), /the collector did not accept/)
  }
})
