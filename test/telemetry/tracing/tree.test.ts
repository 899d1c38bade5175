import assert from 'node:assert/strict'
import { test } from 'node:test'
import { callTrace } from '../../../src/telemetry/tracing/call-trace.ts'
import { answered, metaOf, retrying, tracedMesh, unavailable } from './traced-mesh.ts'

const TRACE = '0af7651916cd43dd8448eb211c80319c'
const AGENT = 'b7ad6b7169203331'
const traceparent = `00-${TRACE}-${AGENT}-01`

const withMeta = (meta: object) => ({
  text: JSON.stringify({
    jsonrpc: '2.0',
    id: 7,
    method: 'tools/call',
    params: { name: 'look', arguments: {}, _meta: meta },
  }),
})

test('a call with one fault and one retry is one SERVER span with two CLIENT spans, from agent to server', async (t) => {
  const mesh = await tracedMesh(t, { settings: retrying, fault: { attempt: 1, outcome: unavailable } })
  await mesh.run('look', withMeta({ traceparent, tracestate: 'vendor=1' }))
  const spans = await mesh.spans()

  assert.equal(spans.length, 3)
  const [server] = mesh.receiver.of('server')
  const clients = mesh.receiver.of('client')
  assert.equal(server?.parentSpanId, AGENT)
  assert.deepEqual(
    clients.map(({ parentSpanId }) => parentSpanId),
    [server?.spanId, server?.spanId],
  )
  assert.ok(spans.every((span) => span.traceId === TRACE && span.traceState === 'vendor=1'))
  assert.equal(new Set(spans.map(({ spanId }) => spanId)).size, 3)

  // The fault replaced the first try: the server saw only the second, under its span.
  assert.equal(mesh.seen.length, 1)
  const stamp = `00-${TRACE}-${clients[1]?.spanId}-01`
  assert.deepEqual(metaOf(mesh.seen[0]), { traceparent: stamp, tracestate: 'vendor=1' })
  assert.equal(mesh.seen[0]?.headers?.traceparent, stamp)
  assert.equal(mesh.seen[0]?.headers?.tracestate, 'vendor=1')

  assert.equal(server?.status, 'unset')
  assert.equal(clients[0]?.status, 'error')
  assert.equal(clients[1]?.status, 'unset')
  const [event] = clients[0]?.events ?? []
  assert.equal(event?.name, 'breakwater.fault')
  assert.deepEqual(event?.attributes, {
    'breakwater.fault.name': 'no-way',
    'breakwater.fault.type': 'connection',
    'breakwater.fault.side': 'upstream',
    'breakwater.fault.status': 'applied',
    'breakwater.fault.attempt': 1,
  })
  assert.deepEqual(server?.attributes['breakwater.faults'], ['no-way'])
})

test('spans last as long as what they stand for, in wall time', async (t) => {
  const mesh = await tracedMesh(t, {
    upstream: async (call, clock) => {
      await clock.sleep(250, call.signal)
      return answered()
    },
  })
  await mesh.clock.advance(40)
  await mesh.run()
  await mesh.spans()
  const epoch = BigInt(Date.UTC(2026, 0, 1)) * 1_000_000n
  for (const kind of ['server', 'client'] as const) {
    const [span] = mesh.receiver.of(kind)
    assert.equal(span?.startNanos, epoch + 40_000_000n)
    assert.equal(span?.endNanos, epoch + 290_000_000n)
  }
})

test('without a parent a trace begins at the gateway', async (t) => {
  const mesh = await tracedMesh(t)
  await mesh.run()
  await mesh.run()
  await mesh.spans()
  const servers = mesh.receiver.of('server')
  assert.deepEqual(
    servers.map(({ parentSpanId }) => parentSpanId),
    ['', ''],
  )
  assert.notEqual(servers[0]?.traceId, servers[1]?.traceId)
  assert.match(String(metaOf(mesh.seen[0])?.traceparent), new RegExp(`^00-${servers[0]?.traceId}-`))
})

test('the header is the parent where _meta names none', async (t) => {
  const mesh = await tracedMesh(t)
  await mesh.run('look', { inbound: { traceparent, tracestate: 'a=b' } })
  await mesh.spans()
  assert.equal(mesh.receiver.of('server')[0]?.parentSpanId, AGENT)
  assert.equal(metaOf(mesh.seen[0])?.tracestate, 'a=b')
})

test('_meta is believed before the header, whose span is a link', async (t) => {
  const mesh = await tracedMesh(t)
  const inbound = { traceparent: `00-${'1'.repeat(32)}-${'2'.repeat(16)}-01`, tracestate: 'proxy=1' }
  await mesh.run('look', { ...withMeta({ traceparent }), inbound })
  await mesh.spans()
  const [server] = mesh.receiver.of('server')
  assert.equal(server?.traceId, TRACE)
  const around = { traceId: '1'.repeat(32), spanId: '2'.repeat(16), traceState: 'proxy=1' }
  assert.deepEqual(server?.links, [around])
  assert.deepEqual(mesh.receiver.of('client')[0]?.links, [])
  assert.equal(mesh.seen[0]?.headers?.tracestate, undefined)
})

test('a header that names the parent is no link, and a header without a parent is no link either', async (t) => {
  const mesh = await tracedMesh(t)
  for (const header of [traceparent, 'nonsense'])
    await mesh.run('look', { ...withMeta({ traceparent }), inbound: { traceparent: header } })
  await mesh.run('look', { inbound: { traceparent } })
  await mesh.spans()
  assert.deepEqual(
    mesh.receiver.of('server').map(({ links }) => links),
    [[], [], []],
  )
})

test('a malformed parent is ignored, and never reaches the server', async (t) => {
  const mesh = await tracedMesh(t)
  const malformed = ['', 'nonsense', 7, `00-${'0'.repeat(32)}-${AGENT}-01`, `${traceparent}\r\nx: y`]
  for (const given of malformed) await mesh.run('look', withMeta({ traceparent: given, other: 1 }))
  await mesh.spans()
  const servers = mesh.receiver.of('server')
  assert.equal(servers.length, malformed.length)
  for (const [index, call] of mesh.seen.entries()) {
    assert.equal(servers[index]?.parentSpanId, '')
    assert.deepEqual(Object.keys(metaOf(call) ?? {}).sort(), ['other', 'traceparent'])
    assert.match(String(metaOf(call)?.traceparent), /^00-[0-9a-f]{32}-[0-9a-f]{16}-01$/)
  }
})

test('one request to all servers is one trace', async (t) => {
  const mesh = await tracedMesh(t)
  const { call } = await mesh.run()
  const other = { ...call, server: 'other' }
  await Promise.all([mesh.send(call), mesh.send(other)])
  await mesh.spans()
  assert.equal(mesh.receiver.of('server').length, 2)
  assert.equal(mesh.receiver.of('client').length, 3)
  const last = mesh.receiver.of('server')[1]
  const children = mesh.receiver.of('client').filter(({ parentSpanId }) => parentSpanId === last?.spanId)
  assert.deepEqual(
    children.map(({ attributes }) => attributes['breakwater.server']),
    ['test', 'other'],
  )
})

test('a defect of the gateway is reported', async (t) => {
  const mesh = await tracedMesh(t, {
    upstream: () => {
      throw new Error('a defect')
    },
  })
  await mesh.run()
  await mesh.spans()
  assert.equal(mesh.receiver.of('server')[0]?.attributes['error.type'], 'internal')
  assert.equal(mesh.receiver.of('client')[0]?.attributes['error.type'], 'internal')
})

test('a record that somebody keeps holds no results', async (t) => {
  const mesh = await tracedMesh(t)
  const { call } = await mesh.run()
  const trace = callTrace.of(call.record)!
  assert.deepEqual(trace.attempts, [])
  assert.equal(trace.outcome, undefined)
  await mesh.spans()
})
