import assert from 'node:assert/strict'
import { test } from 'node:test'
import { answered, bad, good, setUp, times } from './rig.ts'

/** An open breaker at the end of its open time. */
async function due(settings: object = {}) {
  const rig = setUp(settings)
  await rig.sendAll(times(5, bad))
  await rig.clock.advance(5_000)
  return rig
}

test('nothing passes until the open time is over, and then one call does', async () => {
  const { clock, send, sendAll, hold, state } = setUp()
  await sendAll(times(5, bad))
  await clock.advance(4_999)
  assert.equal((await send(good)).kind, 'rejected')
  await clock.advance(1)
  const probe = hold()
  assert.notEqual(probe, undefined)
  const refused = await send(good)
  assert.deepEqual(refused.kind === 'rejected' && refused.error, {
    reason: 'breaker_open',
    code: 1503,
    retryable: true,
    message: 'breaker half-open for test/tool (5 failures in a row); all probes are under way',
    sent: false,
    retryAfterMs: 1_000,
  })
  await probe?.finish(good)
  assert.equal(state(), 'closed')
})

test('a caller that gets the answer of the probe finds the breaker closed', async () => {
  const { send } = await due()
  await send(good)
    .then(() => send(good))
    .then((outcome) => assert.equal(outcome, good))
})

test('a rejected call never closes a half-open breaker', async () => {
  const { hold, send, state } = await due()
  hold()
  for (let i = 0; i < 20; i++) assert.equal((await send(good)).kind, 'rejected')
  assert.equal(state(), 'half_open')
})

test('as many probes as configured pass at a time, and all of them have to succeed', async () => {
  const { hold, send, state } = await due({ probes: 3 })
  const probes = [hold(), hold(), hold()]
  assert.equal((await send(good)).kind, 'rejected')
  await probes[0]?.finish(good)
  await probes[1]?.finish(good)
  assert.equal(state(), 'half_open')
  assert.equal((await send(good)).kind, 'rejected')
  await probes[2]?.finish(good)
  assert.equal(state(), 'closed')
})

test('one failed probe opens the breaker again, and other probes do not count any more', async () => {
  const { clock, hold, state } = await due({ probes: 3 })
  const probes = [hold(), hold(), hold()]
  await probes[0]?.finish(good)
  await probes[1]?.finish(bad)
  assert.equal(state(), 'open')
  await probes[2]?.finish(good)
  await clock.advance(0)
  assert.equal(state(), 'open')
  assert.equal(clock.pending, 0)
})

test('a caller that hears of a failed probe finds the breaker open', async () => {
  const { hold, send, state } = await due({ probes: 2 })
  const states = await hold()
    ?.finish(bad)
    .then(() => state())
  assert.equal(states, 'open')
  assert.equal((await send(good)).kind, 'rejected')
})

test('a slow probe opens a breaker again when slow calls count', async () => {
  const { clock, hold, snapshot } = await due({ slow: { over: '2s' } })
  const probe = hold()
  await clock.advance(2_001)
  await probe?.finish(good)
  assert.deepEqual([snapshot().state, snapshot().why], ['open', 'a probe was slow'])
})

test('a hung probe is given up, and opens the breaker again for longer', async () => {
  const { clock, hold, snapshot, send } = await due({ probeTimeout: '10s' })
  const probe = hold()
  await clock.advance(9_999)
  assert.equal(snapshot().state, 'half_open')
  await clock.advance(1)
  const { state, why, openForMs } = snapshot()
  assert.deepEqual([state, why, openForMs], ['open', 'a probe has not come back within 10s', 10_000])
  assert.equal(clock.pending, 0)
  await probe?.finish(good)
  assert.equal(snapshot().state, 'open')
  await clock.advance(10_000)
  await send(good)
  assert.equal(snapshot().state, 'closed')
})

test('a probe is not hung while the agent is asked', async () => {
  const { clock, hold, state } = await due({ probeTimeout: '10s' })
  const probe = hold()
  probe!.call.record.asking = 1
  probe!.call.record.askingSince = clock.now()
  await clock.advance(60_000)
  assert.equal(state(), 'half_open')
  await probe?.finish(good)
  assert.deepEqual([state(), clock.pending], ['closed', 0])
})

test('a late result of an older generation changes nothing', async () => {
  const { clock, hold, send, sendAll, snapshot } = setUp()
  const late = [hold(), hold(), hold()]
  await sendAll(times(5, bad))
  const { generation } = snapshot()
  await late[0]?.finish(good)
  assert.deepEqual([snapshot().state, snapshot().generation], ['open', generation])
  await clock.advance(5_000)
  const probe = hold()
  await late[1]?.finish(good)
  assert.equal(snapshot().state, 'half_open')
  await probe?.finish(good)
  await late[2]?.finish(bad)
  assert.deepEqual([snapshot().state, snapshot().availability.bad], ['closed', 0])
  assert.equal((await send(good)).kind, 'answered')
})

test('a recovery empties the windows', async () => {
  const { send, sendAll, snapshot } = await due()
  await send(answered('correct'))
  assert.deepEqual(snapshot().availability, { good: 0, bad: 0, ratio: 0 })
  await sendAll(times(4, bad))
  assert.equal(snapshot().state, 'closed')
})
