import assert from 'node:assert/strict'
import { test } from 'node:test'
import { bad, good, setUp, times } from './rig.ts'

test('a breaker opened by hand stays open after any success and any time', async () => {
  const { clock, hold, send, breakerOf, snapshot } = setUp()
  const late = [hold(), hold()]
  breakerOf().force('open')
  for (const call of late) await call?.finish(good)
  await clock.advance(40 * 86_400_000)
  const outcome = await send(good)
  assert.deepEqual(outcome.kind === 'rejected' && outcome.error, {
    reason: 'breaker_open',
    code: 1503,
    retryable: true,
    message: 'breaker open for test/tool (opened by hand), until it is closed by hand',
    sent: false,
    retryAfterMs: undefined,
  })
  const { state, manual, dimension, nextProbeInMs, openForMs } = snapshot()
  assert.deepEqual(
    [state, manual, dimension, nextProbeInMs, openForMs],
    ['open', true, 'manual', undefined, undefined],
  )
})

test('a breaker that opened by itself can be held open', async () => {
  const { clock, send, sendAll, breakerOf, snapshot, events } = setUp()
  await sendAll(times(5, bad))
  breakerOf().force('open')
  breakerOf().force('open')
  await clock.advance(5_000)
  assert.equal((await send(good)).kind, 'rejected')
  assert.equal(snapshot().manual, true)
  assert.deepEqual(
    events.map(({ detail }) => detail?.dimension),
    ['consecutive', 'manual'],
  )
})

test('a probe that is under way does not undo what was done by hand', async () => {
  for (const outcome of [good, bad]) {
    const { clock, hold, sendAll, breakerOf, snapshot } = setUp()
    await sendAll(times(5, bad))
    await clock.advance(5_000)
    const probe = hold()
    breakerOf().force('open')
    assert.equal(clock.pending, 0)
    await probe?.finish(outcome)
    await clock.advance(60_000)
    assert.deepEqual([snapshot().state, snapshot().manual], ['open', true])
  }
})

test('a decision of a probe that opossum has not heard yet does not undo an order either', async () => {
  for (const outcome of [good, bad])
    for (const [order, state] of [
      ['open', 'open'],
      ['close', 'closed'],
    ] as const) {
      const rig = setUp()
      await rig.sendAll(times(5, bad))
      await rig.clock.advance(5_000)
      const probe = rig.hold()
      void probe?.finish(outcome)
      await Promise.resolve()
      rig.breakerOf().force(order)
      await rig.clock.advance(0)
      assert.equal(rig.state(), state)
    }
})

test('closing by hand passes calls at once, with empty windows, and the breaker may open again', async () => {
  const { clock, hold, sendAll, breakerOf, snapshot } = setUp()
  const late = hold()
  await sendAll(times(5, bad))
  breakerOf().force('close')
  await late?.finish(bad)
  assert.deepEqual([snapshot().state, snapshot().manual, snapshot().consecutive], ['closed', false, 0])
  assert.equal(snapshot().dimension, 'manual')
  await clock.advance(1)
  await sendAll(times(5, bad))
  assert.deepEqual([snapshot().state, snapshot().openForMs], ['open', 10_000])
})

test('a reset forgets the windows and the openings', async () => {
  const { sendAll, hold, breakerOf, snapshot } = setUp()
  await sendAll(times(5, bad))
  breakerOf().force('reset')
  await sendAll(times(4, bad))
  const late = hold()
  breakerOf().force('reset')
  await late?.finish(bad)
  assert.deepEqual([snapshot().state, snapshot().availability.bad], ['closed', 0])
  await sendAll(times(5, bad))
  assert.equal(snapshot().openForMs, 5_000)
})

test('a snapshot says since when, how long, and what was counted', async () => {
  const { clock, sendAll, snapshot } = setUp()
  await clock.advance(1_000)
  await sendAll([good, ...times(5, bad)])
  await clock.advance(1_500)
  assert.deepEqual(snapshot(), {
    state: 'open',
    since: clock.wall() - 1_500,
    dimension: 'consecutive',
    why: '5 failures in a row',
    manual: false,
    availability: { good: 1, bad: 5, ratio: 5 / 6 },
    correctness: { good: 1, bad: 0, ratio: 0 },
    slow: undefined,
    consecutive: 5,
    openForMs: 5_000,
    nextProbeInMs: 3_500,
    generation: 1,
  })
})
