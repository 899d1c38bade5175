import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import type { Outcome } from '../../src/mesh/call.ts'
import { Cancellation } from '../../src/mesh/cancel.ts'
import { gatewayError } from '../../src/mesh/errors.ts'
import { bulkhead } from '../../src/policies/bulkhead.ts'
import { toolCall } from '../support/caller.ts'
import { testPolicyContext, testScope } from '../support/policy-context.ts'
import { answer, Stage } from './bulkhead/stage.ts'

const deadline = (at: number) => ({ at, reserveMs: undefined })

test('calls over the limit wait, those over the queue are rejected with both numbers', async () => {
  const stage = new Stage({ concurrent: 2, perTool: 2, queue: 1 })
  for (const id of ['a', 'b', 'c', 'd']) stage.send(id)
  assert.deepEqual(stage.started, ['a', 'b'])
  const error = await stage.rejected('d')
  assert.equal(error.reason, 'bulkhead_full')
  assert.equal(error.message, 'bulkhead full for tool of search (2 of 2 running, 1 of 1 waiting)')
  assert.equal(error.sent, false)
  await stage.end('a')
  assert.deepEqual(stage.started, ['a', 'b', 'c'])
  assert.deepEqual(stage.outcomes.get('a'), answer)
})

test('a message names the server when the server is full', async () => {
  const stage = new Stage({ concurrent: 2, perTool: 1, queue: 0 })
  stage.send('a', { tool: 'one' })
  stage.send('b', { tool: 'two' })
  stage.send('c', { tool: 'three' })
  const { message } = await stage.rejected('c')
  assert.equal(message, 'bulkhead full for search (2 of 2 running, 0 of 0 waiting)')
})

test('calls of one tenant go in the order in which they came, and deadlines decide nothing', async () => {
  const stage = new Stage({ concurrent: 1, queue: 5 })
  stage.send('running')
  stage.send('none')
  stage.send('late', { deadline: deadline(900) })
  stage.send('none too')
  stage.send('early', { deadline: deadline(100) })
  const order = ['running', 'none', 'late', 'none too', 'early']
  for (const id of order) await stage.end(id)
  assert.deepEqual(stage.started, order)
})

test('once the oldest call has waited for 300 ms, the newest goes first', async () => {
  for (const [waitedMs, order] of [
    [299, ['running', 'old', 'middle', 'new']],
    [300, ['running', 'new', 'middle', 'old']],
  ] as const) {
    const stage = new Stage({ concurrent: 1, queue: 5 })
    stage.send('running')
    stage.send('old')
    await stage.clock.advance(waitedMs)
    stage.send('middle')
    stage.send('new')
    for (const id of order) await stage.end(id)
    assert.deepEqual(stage.started, order)
  }
})

test('a slot is given back once, whether the call was answered, failed or was rejected further in', async () => {
  const stage = new Stage({ concurrent: 2, perTool: 2, queue: 0 })
  const error = gatewayError('upstream_disconnected', 'gone', { sent: true })
  stage.send('a')
  await stage.end('a', { kind: 'failed', error })
  stage.send('b')
  await stage.end('b', { kind: 'rejected', error, by: 'breaker' })
  stage.send('c')
  await stage.end('c')
  for (const id of ['d', 'e', 'f']) stage.send(id)
  assert.deepEqual(stage.started, ['a', 'b', 'c', 'd', 'e'])
  await stage.rejected('f')
})

test('a slot is given back when something further in breaks, and the defect meets its own call only', async () => {
  const config = bulkhead.schema.parse({ concurrent: 1, queue: 1 })
  const layer = bulkhead.build(config, testPolicyContext(), testScope())
  let settle: (outcome: Outcome) => void = () => undefined
  const service = layer(({ id }) => {
    if (id === 'first') return new Promise((resolve) => (settle = resolve))
    if (id === 'last') return Promise.resolve(answer)
    throw new Error('a defect')
  })
  const first = service(toolCall('tool', {}, { id: 'first' }))
  const second = service(toolCall('tool', {}, { id: 'second' }))
  settle(answer)
  assert.deepEqual(await first, answer)
  await assert.rejects(second, /a defect/)
  assert.throws(() => void service(toolCall('tool', {}, { id: 'third' })), /a defect/)
  assert.deepEqual(await service(toolCall('tool', {}, { id: 'last' })), answer)
})

test('a waiting call that is given up ends at once for its own reason, and frees its place', async () => {
  const stage = new Stage({ concurrent: 1, queue: 1, maxWait: '1s' })
  const signal = new Cancellation()
  stage.send('a')
  const call = stage.send('b', { signal })
  call.record.sent = true
  signal.abort(gatewayError('deadline_exceeded', 'too late'))
  await setImmediate()
  const outcome = stage.outcomes.get('b')
  assert.deepEqual(outcome, {
    kind: 'failed',
    error: gatewayError('deadline_exceeded', 'too late', { sent: true }),
  })
  stage.send('c')
  assert.equal(stage.pools()[0]?.waiting, 1)
  await stage.end('a')
  await stage.end('c')
  assert.deepEqual(stage.started, ['a', 'c'])
  // Timers for long-held slots are never cancelled, so the clock has to run on.
  await stage.clock.advance(10_000)
  assert.equal(stage.clock.pending, 0)
  assert.equal(stage.outcomes.get('b'), outcome)
})

test('a call cancelled before its arrival takes no place', async () => {
  const stage = new Stage({ concurrent: 1, queue: 1 })
  const signal = new Cancellation()
  const reason = gatewayError('cancelled', 'not needed any more')
  signal.abort(reason)
  stage.send('a')
  stage.send('b', { signal })
  await setImmediate()
  assert.deepEqual(stage.outcomes.get('b'), { kind: 'failed', error: reason })
  assert.equal(stage.pools()[0]?.waiting, 0)
})

test('nobody waits longer than maxWait, and nothing is left of who did', async () => {
  const stage = new Stage({ concurrent: 1, queue: 1, maxWait: 500 })
  stage.send('a')
  stage.send('b')
  await stage.clock.advance(499)
  assert.equal(stage.outcomes.size, 0)
  await stage.clock.advance(1)
  const { message } = await stage.rejected('b')
  assert.equal(message, 'waited 500ms for a free slot of tool of search (1 of 1 running)')
  await stage.end('a')
  assert.deepEqual(stage.started, ['a'])
  assert.deepEqual(stage.pools(), [
    { concurrent: 1, running: 0, overdue: 0, queue: 1, waiting: 0, tenants: 0, holdMs: 500, tools: [] },
  ])
  await stage.clock.advance(10_000)
  assert.equal(stage.clock.pending, 0)
})

test('a rejected caller hears when to come back, from how long slots are held', async () => {
  const stage = new Stage({ concurrent: 1, queue: 0 })
  stage.send('unknown')
  stage.send('early')
  assert.equal((await stage.rejected('early')).retryAfterMs, 50)
  await stage.clock.advance(2_000)
  await stage.end('unknown')
  stage.send('a')
  stage.send('later')
  assert.equal((await stage.rejected('later')).retryAfterMs, 2_000)
  await stage.clock.advance(100)
  await stage.end('a')
  stage.send('b')
  stage.send('less')
  assert.equal((await stage.rejected('less')).retryAfterMs, 1_810)
})

test('no caller is told to wait for more than 30 s', async () => {
  const stage = new Stage({ concurrent: 1, queue: 0 })
  stage.send('slow')
  await stage.clock.advance(10_000_000)
  await stage.end('slow')
  stage.send('next')
  stage.send('last')
  assert.equal((await stage.rejected('last')).retryAfterMs, 30_000)
})

test('calls that hang count for what they have held their slots so far', async () => {
  const stage = new Stage({ concurrent: 4, perTool: 2, queue: 0 })
  stage.send('quick')
  await stage.clock.advance(10)
  await stage.end('quick')
  stage.send('hung 1')
  await stage.clock.advance(3_000)
  stage.send('hung 2')
  await stage.clock.advance(1_000)
  stage.send('refused')
  // The slots are 4 s and 1 s old, 2.5 s on average. Of two slots, the first ends within half the average.
  assert.equal((await stage.rejected('refused')).retryAfterMs, 1_250)
  await stage.end('hung 1')
  await stage.end('hung 2')
  assert.equal(stage.pools()[0]?.running, 0)
})

test('the defaults leave half of the slots to other tools, and contradictions are refused', () => {
  const { schema } = bulkhead
  assert.deepEqual(schema.parse({}), { concurrent: 128, queue: 1_024, maxWait: 30_000, tenantShare: 0.5 })
  const refused = schema.safeParse({ concurrent: 8, perTool: 9 })
  assert.equal(refused.error?.issues[0]?.message, 'perTool must not exceed concurrent (8)')
  assert.equal(schema.safeParse({ tenantShare: 0 }).success, false)
})
