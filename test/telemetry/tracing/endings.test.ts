import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Outcome } from '../../../src/mesh/call.ts'
import { gatewayError } from '../../../src/mesh/errors.ts'
import { policies } from '../../../src/policies/index.ts'
import { callTrace } from '../../../src/telemetry/tracing/call-trace.ts'
import { toolCall } from '../../support/caller.ts'
import { answered, metaOf, retrying, tracedMesh, unavailable } from './traced-mesh.ts'

const cancelled: Outcome = { kind: 'failed', error: gatewayError('cancelled', 'the agent gave it up') }

const withKey = (text: string) =>
  toolCall(
    'look',
    {},
    {
      text: JSON.stringify({
        jsonrpc: '2.0',
        id: text,
        method: 'tools/call',
        params: { name: 'look', arguments: {}, _meta: { 'dev.breakwater/idempotency-key': 'k' } },
      }),
    },
  )

const idempotent = { idempotency: policies.idempotency.schema.parse({}) }

test('a call that its agent gives up has spans that end then', async (t) => {
  const giveUp = new AbortController()
  const mesh = await tracedMesh(t, {
    upstream: ({ signal }, clock) =>
      clock.sleep(5_000, signal).then(
        () => answered(),
        () => cancelled,
      ),
  })
  const ended = mesh.send(toolCall('look', {}, { signal: giveUp.signal }))
  await mesh.clock.advance(100)
  giveUp.abort(cancelled.kind === 'failed' ? cancelled.error : undefined)
  await ended
  await mesh.spans()
  for (const kind of ['server', 'client'] as const) {
    const [span, ...more] = mesh.receiver.of(kind)
    assert.deepEqual(more, [])
    assert.equal(span?.attributes['error.type'], 'cancelled')
    assert.equal(span?.attributes['breakwater.result'], 'cancelled')
    assert.equal(span.endNanos - span.startNanos, 100_000_000n)
    assert.equal(span.attributes['breakwater.abandoned'], undefined)
  }
})

test('a call that a policy rejects has no attempt, and says who rejected it', async (t) => {
  const mesh = await tracedMesh(t, {
    settings: { bulkhead: policies.bulkhead.schema.parse({ concurrent: 1, queue: 0 }) },
    upstream: async (call, clock) => {
      await clock.sleep(100, call.signal)
      return answered()
    },
  })
  const first = mesh.send(toolCall('look'))
  assert.equal((await mesh.send(toolCall('look', {}, { id: 'second' }))).kind, 'rejected')
  await mesh.clock.advance(100)
  await first
  await mesh.spans()
  const rejected = mesh.receiver
    .of('server')
    .find(({ attributes }) => attributes['jsonrpc.request.id'] === 'second')
  assert.equal(rejected?.attributes['breakwater.rejected_by'], 'bulkhead')
  assert.equal(rejected?.attributes['error.type'], 'bulkhead_full')
  assert.equal(rejected?.status, 'error')
  assert.deepEqual(
    rejected?.events.map(({ name, attributes }) => [name, attributes['breakwater.policy.decision']]),
    [['breakwater.policy', 'rejected']],
  )
  assert.equal(mesh.receiver.of('client').length, 1)
})

test('a call that gets the answer of another has a span of its own, and no attempt', async (t) => {
  const mesh = await tracedMesh(t, {
    settings: idempotent,
    upstream: async (call, clock) => {
      await clock.sleep(100, call.signal)
      return answered({ result: { content: [] } })
    },
  })
  const [first, joined] = [mesh.send(withKey('first')), mesh.send(withKey('joined'))]
  await mesh.clock.advance(0)
  await mesh.clock.advance(100)
  await Promise.all([first, joined])
  await mesh.send(withKey('stored'))
  await mesh.spans()
  const told = mesh.receiver
    .of('server')
    .map(({ attributes, events }) => [
      attributes['jsonrpc.request.id'],
      attributes['breakwater.result'],
      events[0]?.attributes['breakwater.policy.reason'],
    ])
  assert.deepEqual(told.sort(), [
    ['first', 'returned', undefined],
    ['joined', 'returned', 'joined'],
    ['stored', 'returned', 'stored'],
  ])
  assert.equal(mesh.receiver.of('client').length, 1)
})

test('a run without its caller leaves no spans behind, and its server span belongs under the call', async (t) => {
  const giveUp = new AbortController()
  const mesh = await tracedMesh(t, {
    settings: { ...idempotent, ...retrying },
    upstream: async ({ attempt, signal }, clock) => {
      await clock.sleep(100, signal)
      return attempt === 1 ? unavailable : answered()
    },
  })
  const call = { ...withKey('gone'), signal: giveUp.signal }
  const ended = mesh.send(call)
  await mesh.clock.advance(50)
  giveUp.abort(gatewayError('cancelled', 'the agent gave it up'))
  await ended
  await mesh.clock.advance(1_000)
  await mesh.spans()
  assert.equal(mesh.seen.length, 2)
  const [server] = mesh.receiver.of('server')
  const [abandoned, ...more] = mesh.receiver.of('client')
  assert.deepEqual(more, [])
  assert.equal(abandoned?.attributes['breakwater.abandoned'], true)
  assert.equal(abandoned?.endNanos, server?.endNanos)
  assert.equal(metaOf(mesh.seen[1])?.traceparent, `00-${server?.traceId}-${server?.spanId}-01`)
  assert.deepEqual(callTrace.of(call.record)?.attempts, [])
})

test('a hedge that lost ends with its call', async (t) => {
  const mesh = await tracedMesh(t, {
    settings: { hedge: policies.hedge.schema.parse({ after: 20 }) },
    upstream: async ({ attempt, signal }, clock) => {
      await clock.sleep(attempt === 1 ? 5_000 : 100, signal).catch(() => undefined)
      return signal.aborted ? cancelled : answered()
    },
  })
  await mesh.run()
  await mesh.spans()
  const [server] = mesh.receiver.of('server')
  const clients = mesh.receiver.of('client')
  assert.equal(clients.length, 2)
  assert.ok(
    clients.every(({ endNanos, parentSpanId }) => {
      return endNanos <= (server?.endNanos ?? 0n) && parentSpanId === server?.spanId
    }),
  )
  assert.equal(server?.status, 'unset')
})
