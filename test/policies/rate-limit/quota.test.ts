import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import type { Outcome } from '../../../src/mesh/call.ts'
import { Cancellation } from '../../../src/mesh/cancel.ts'
import { type Clock, systemClock } from '../../../src/mesh/clock.ts'
import { gatewayError } from '../../../src/mesh/errors.ts'
import type { PolicyContext } from '../../../src/mesh/policy.ts'
import { rateLimit } from '../../../src/policies/rate-limit.ts'
import { type CallParts, toolCall } from '../../support/caller.ts'
import { testPolicyContext, testScope } from '../../support/policy-context.ts'
import { until } from '../../support/until.ts'
import { ManualClock } from '../../support/manual-clock.ts'

const answer: Outcome = {
  kind: 'answered',
  result: { text: '{}', value: {}, status: 200 },
  verdict: 'unchecked',
}

// Waiting calls do not keep a process alive, so this timer does.
const alive = setInterval(() => undefined, 1_000)
after(() => clearInterval(alive))

let reading: number | undefined

/** Returns the same time for everything in one turn: a pause of the machine within a turn breaks no quota. */
const steadyClock: Clock = {
  ...systemClock,
  now() {
    if (reading === undefined) queueMicrotask(() => (reading = undefined))
    return (reading ??= systemClock.now())
  },
}

/** bottleneck paces by the machine's clock: calls here wait in real time, and only lower bounds are checked. */
function setUp(
  quota: object,
  clock: Clock = steadyClock,
  context: PolicyContext = testPolicyContext(clock),
  set = 'default',
) {
  const started: { id: unknown; at: number }[] = []
  const config = rateLimit.schema.parse({ quota })
  const service = rateLimit.build(
    config,
    context,
    testScope({ server: 'search', set }),
  )(({ id, onSent }) => {
    started.push({ id, at: clock.now() })
    onSent?.()
    return Promise.resolve(answer)
  })
  const send = (id: string, parts: Partial<CallParts> = {}) => service(toolCall('tool', {}, { id, ...parts }))
  const facts = () => context.state.list<{ snapshot(): unknown[] }>('rate-limit-quota')[0]?.[1].snapshot()[0]
  return { context, started, send, facts }
}

const errorOf = (outcome: Outcome) => (outcome.kind === 'rejected' ? outcome.error : undefined)

test('a reload that changes a quota frees no calls that the server has seen', async () => {
  const clock = new ManualClock()
  const first = setUp({ calls: 3, per: 600, queue: 0 }, clock)
  const results = async ({ send }: Pick<typeof first, 'send'>, count: number) => {
    const outcomes = await Promise.all(Array.from({ length: count }, (_, n) => send(`call ${n}`)))
    return outcomes.filter(({ kind }) => kind === 'answered').length
  }
  assert.equal(await results(first, 4), 3)
  const others = [
    { calls: 3, per: 600, queue: 0, maxWait: 5 },
    { calls: 3, per: 600, queue: 0, minTime: 1 },
    { calls: 2, per: 600, queue: 0 },
  ]
  for (const quota of others) assert.equal(await results(setUp(quota, clock, first.context), 1), 0)
  const more = setUp({ calls: 5, per: 600, queue: 0 }, clock, first.context)
  assert.equal(await results(more, 4), 2)
  await clock.advance(600)
  assert.equal(await results(more, 6), 5)
})

test('calls beyond the quota wait, go in the order in which they came, and never break it', async () => {
  const { started, send, facts } = setUp({ calls: 5, per: 60, queue: 20 })
  const names = Array.from({ length: 17 }, (_, i) => `call ${i}`)
  const outcomes = await Promise.all(names.map((name) => send(name)))
  assert.ok(outcomes.every((outcome) => outcome === answer))
  assert.deepEqual(
    started.map(({ id }) => id),
    names,
  )
  for (const [i, { at }] of started.entries()) assert.ok((started[i + 5]?.at ?? Infinity) - at >= 60)
  assert.deepEqual((facts() as { waiting: number }).waiting, 0)
})

test('calls within the quota pass without waiting for anything', () => {
  const { started, send } = setUp({ calls: 2, per: '1h', queue: 0 }, new ManualClock())
  void send('a')
  void send('b')
  assert.equal(started.length, 2)
})

test('a quota of many calls is kept although several share a turn', async () => {
  const { started, send } = setUp({ calls: 40, per: 40, queue: 200 })
  await Promise.all(Array.from({ length: 100 }, (_, i) => send(`${i}`)))
  assert.equal(started.length, 100)
  for (const [i, { at }] of started.entries()) assert.ok((started[i + 40]?.at ?? Infinity) - at >= 40)
})

test('calls keep their distance while they wait', async () => {
  const { started, send } = setUp({ calls: 100, per: '1s', minTime: 10, queue: 9 })
  await Promise.all(['a', 'b', 'c', 'd'].map((id) => send(id)))
  for (const [i, { at }] of started.entries()) assert.ok((started[i + 1]?.at ?? Infinity) - at >= 10)
})

test('a full line rejects, and tells when a turn would come', async () => {
  const { send } = setUp({ calls: 1, per: 50, queue: 1 })
  await send('a')
  const waiting = send('b')
  const error = errorOf(await send('c'))
  assert.equal(error?.reason, 'rate_limited')
  assert.equal(error?.message, 'quota of 1 call in 50ms for search is used up (1 of 1 waiting)')
  assert.ok((error?.retryAfterMs ?? 0) > 50)
  assert.equal(await waiting, answer)
})

test('a call whose turn cannot come in time is rejected at once', async () => {
  const clock = new ManualClock()
  const { send, facts } = setUp({ calls: 1, per: '1m', queue: 9, maxWait: '10s' }, clock)
  await send('a')
  await clock.advance(20_000)
  const error = errorOf(await send('b'))
  assert.equal(error?.message, 'quota of 1 call in 1m for search is used up for 40s')
  assert.equal(error?.retryAfterMs, 40_000)
  await clock.advance(31_000)
  const hurried = await send('c', { deadline: { at: 58_000, reserveMs: undefined } })
  assert.equal(errorOf(hurried)?.retryAfterMs, 9_000)
  assert.deepEqual(facts(), { calls: 1, perMs: 60_000, left: 0, queue: 9, waiting: 0 })
})

test('the first in line waits for the quota, and those behind it keep apart from then on', async () => {
  const clock = new ManualClock()
  const { started, send, facts } = setUp({ calls: 10, per: '2s', queue: 100, maxWait: '3s' }, clock)
  const outcomes = Array.from({ length: 60 }, (_, n) => send(String(n)))
  // At 2 s two calls, then a call each 200 ms: seven calls until 3 s are over.
  assert.equal((facts() as { waiting: number }).waiting, 7)
  const last = errorOf(await outcomes[59]!)
  assert.equal(last?.message, 'quota of 10 calls in 2s for search is used up for 4s')
  assert.equal(last?.retryAfterMs, 3_200)
  assert.equal(started.length, 10)
  for (let passed = 0; passed < 3_000; passed += 10) await clock.advance(10)
  assert.equal((facts() as { waiting: number }).waiting, 0)
  assert.equal(clock.pending, 0)
})

test('a waiting call that is given up leaves at once, and its turn goes to the next', async () => {
  const { started, send, facts } = setUp({ calls: 1, per: 1_000, queue: 2 })
  const signal = new Cancellation()
  await send('a')
  const given = send('b', { signal })
  const next = send('c')
  const reason = gatewayError('cancelled', 'not needed any more')
  signal.abort(reason)
  assert.deepEqual(await given, { kind: 'failed', error: reason })
  assert.equal(started.length, 1)
  const last = send('d')
  assert.deepEqual((facts() as { waiting: number }).waiting, 2)
  assert.deepEqual([await next, await last], [answer, answer])
  assert.deepEqual(
    started.map(({ id }) => id),
    ['a', 'c', 'd'],
  )
})

test('nobody waits longer than maxWait, and nothing is left of who did', async () => {
  const clock = new ManualClock()
  const { started, send } = setUp({ calls: 1, per: '1s', queue: 1, maxWait: '1s' }, clock)
  await send('a')
  const waiting = send('b')
  await clock.advance(1_000)
  const message = 'quota of 1 call in 1s for search is used up (waited 1s)'
  assert.equal(errorOf(await waiting)?.message, message)
  assert.equal(started.length, 1)
  assert.equal(clock.pending, 0)
})

test('policy sets share one quota, other numbers begin anew while those who wait get their turn', async () => {
  const quota = { calls: 1, per: 40, queue: 5 }
  const first = setUp(quota)
  const arm = setUp(quota, systemClock, first.context, 'cautious')
  await first.send('a')
  const waiting = arm.send('b')
  assert.equal(arm.started.length, 0)
  const renewed = setUp({ ...quota, calls: 2 }, systemClock, first.context)
  await renewed.send('c')
  assert.equal(renewed.started.length, 1)
  assert.equal(await waiting, answer)
})

test('a call counts from its arrival at the server, and an unsent call leaves its place to others', async () => {
  const clock = new ManualClock()
  const context = testPolicyContext(clock)
  const config = rateLimit.schema.parse({ quota: { calls: 2, per: 1_000, queue: 5, maxWait: 20_000 } })
  const held: ((isSent: boolean) => void)[] = []
  const arrived: number[] = []
  const service = rateLimit.build(
    config,
    context,
    testScope({ server: 'search' }),
  )(
    ({ onSent }) =>
      new Promise((resolve) =>
        held.push((isSent) => {
          if (isSent) {
            arrived.push(clock.now())
            onSent?.()
          }
          resolve(answer)
        }),
      ),
  )
  const call = () => service(toolCall('tool'))
  const all = [call(), call()]
  await clock.advance(5_000)
  // Both have passed the quota and wait for a slot: a third call would arrive with them.
  all.push(call())
  await clock.advance(3_000)
  assert.equal(held.length, 2)
  held[0]!(true)
  held[1]!(false)
  await until('the third call is sent', async () => (await clock.advance(50), held.length === 3))
  held[2]!(true)
  all.push(call())
  assert.ok(arrived[1]! - arrived[0]! < 1_000)
  await clock.advance(500)
  assert.equal(held.length, 3, 'two have reached the server in this second')
  await until('the fourth call is sent', async () => (await clock.advance(50), held.length === 4))
  held[3]!(true)
  assert.ok(arrived[2]! - arrived[0]! >= 1_000)
  for (const outcome of await Promise.all(all)) assert.equal(outcome.kind, 'answered')
})
