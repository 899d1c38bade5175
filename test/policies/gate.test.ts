import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import type { Outcome } from '../../src/mesh/call.ts'
import { Cancellation } from '../../src/mesh/cancel.ts'
import { gatewayError } from '../../src/mesh/errors.ts'
import { gate } from '../../src/policies/gate.ts'
import { gateWait } from '../../src/policies/gate/state-machine.ts'
import { lost, setUp } from './gate/rig.ts'
import { failed, rejected, rpcError } from './retry/scripted.ts'

/** Returns why a call was rejected; undefined if it was not. */
const refusal = (outcome: Outcome | undefined) =>
  outcome?.kind === 'rejected' ? outcome.error.message : undefined

test('calls pass at once as long as their server is there, however they fail', async () => {
  const { send, end, sent, outcomes, snapshot } = setUp()
  for (const id of ['a', 'b']) send(id)
  assert.deepEqual(sent, ['a', 'b'])
  for (const outcome of [rpcError(-32603), failed('attempt_timeout'), failed('upstream_status'), rejected]) {
    send('c')
    await end('c', outcome)
    assert.equal(outcomes.get('c'), outcome)
    assert.equal(snapshot().state, 'closed')
  }
})

test('calls wait while their server is lost, and go in the order in which they came', async () => {
  const { clock, lose, reach, send, end, sent, snapshot } = setUp()
  await lose()
  for (const id of ['a', 'b', 'c']) send(id)
  await clock.advance(10_000)
  assert.deepEqual(sent, [])
  assert.deepEqual([snapshot().state, snapshot().waiting], ['open', 3])
  await reach()
  for (const id of ['a', 'b', 'c']) await end(id)
  assert.deepEqual(sent, ['a', 'b', 'c'])
  assert.equal(snapshot().state, 'closed')
})

test('a call says how long it waited for its server', async () => {
  const { clock, lose, reach, send } = setUp()
  await lose()
  const { record } = send('a')
  await clock.advance(3_000)
  await reach()
  assert.deepEqual([gateWait.of(record), record.waitedMs], [3_000, 3_000])
})

test('after a probe one call goes first, and each success lets two more go', async () => {
  const { clock, lose, reach, send, end, sent } = setUp()
  await lose()
  for (let i = 0; i < 10; i++) send(`${i}`)
  await clock.advance(1_000)
  await reach()
  assert.equal(sent.length, 1)
  await end('0')
  assert.equal(sent.length, 3)
  await end('1')
  assert.equal(sent.length, 5)
})

test('a released call that is lost closes the gate again, and the next try comes later each time', async () => {
  const { clock, lose, reach, send, end, sent, snapshot } = setUp()
  await lose()
  const triedAt: number[] = []
  for (let i = 0; i < 4; i++) send(`${i}`)
  let tried = 0
  for (let ms = 0; ms < 1_000; ms++) {
    await reach()
    if (sent.length > tried) {
      triedAt.push(clock.now())
      await end(String(sent[tried++]), lost)
      assert.equal(snapshot().state, 'open')
    }
    await clock.advance(1)
  }
  assert.deepEqual(
    triedAt.map((at, index) => at - (triedAt[index - 1] ?? 0)),
    [50, 75, 113, 169],
  )
})

test('calls that overlap a later success are no loss', async () => {
  const { clock, send, end, snapshot, told } = setUp()
  send('early')
  await clock.advance(10)
  send('later')
  await clock.advance(10)
  await end('later')
  await end('early', lost)
  assert.deepEqual([snapshot().state, told()], ['closed', []])
})

test('a call that waited further in was sent when its wait was over', async () => {
  const { clock, send, end, snapshot } = setUp()
  const { record } = send('waits')
  await clock.advance(10)
  send('answered')
  await end('answered')
  await clock.advance(10)
  record.waitedMs += 20
  await end('waits', lost)
  assert.equal(snapshot().state, 'open')
})

test('a call whose tries waited side by side was not sent in the future', async () => {
  const { clock, send, end, snapshot } = setUp()
  const { record } = send('waits')
  await clock.advance(10)
  record.waitedMs += 60_000
  await end('waits')
  await clock.advance(10)
  send('next')
  await end('next', lost)
  assert.equal(snapshot().state, 'open')
})

test('calls that are lost together are one loss', async () => {
  const { clock, send, end, told, snapshot } = setUp()
  for (let i = 0; i < 5; i++) {
    send(`${i}`)
    await clock.advance(1)
  }
  for (let i = 0; i < 5; i++) await end(`${i}`, lost)
  assert.deepEqual([snapshot().state, told()], ['open', ['open']])
})

test('a program that reports itself as down is not waited for', async () => {
  const { send, end, snapshot } = setUp()
  const error = gatewayError('upstream_unavailable', 'the program does not start')
  send('a')
  await end('a', { kind: 'failed', error: { ...error, notStarted: true } })
  assert.equal(snapshot().state, 'closed')
})

test('a call waits for its patience, and then tries once', async () => {
  const { clock, lose, send, end, sent, outcomes } = setUp({ config: { patience: '5s' } })
  await lose()
  send('a')
  await clock.advance(4_999)
  assert.deepEqual(sent, [])
  await clock.advance(1)
  assert.deepEqual(sent, ['a'])
  await end('a', lost)
  assert.equal(outcomes.get('a'), lost)
  await clock.advance(60_000)
  assert.deepEqual(sent, ['a'])
})

test('a retry that has waited in vain is rejected, and never sent', async () => {
  const { clock, lose, send, sent, outcomes } = setUp()
  await lose()
  send('retry', { attempt: 2 })
  await clock.advance(20_000)
  assert.deepEqual(sent, [])
  assert.equal(
    refusal(outcomes.get('retry')),
    'test is lost (upstream_unavailable), and the call has waited for 20s',
  )
})

test('after giveUp nobody waits: each call tries once, and a retry fails at once', async () => {
  const { clock, lose, send, sent, outcomes } = setUp()
  await lose()
  await clock.advance(119_999)
  send('waits', {})
  assert.deepEqual(sent, [])
  await clock.advance(1)
  for (const id of ['a', 'b']) send(id)
  send('retry', { attempt: 2 })
  await setImmediate()
  assert.deepEqual(sent, ['a', 'b'])
  assert.equal(outcomes.get('retry')?.kind, 'rejected')
})

test('a call that tries once and is answered opens the gate for all who wait', async () => {
  const { clock, lose, send, end, sent, snapshot } = setUp()
  await lose()
  send('first')
  await clock.advance(10_000)
  for (const id of ['a', 'b']) send(id)
  await clock.advance(10_000)
  await end('first')
  assert.deepEqual(sent, ['first', 'a'])
  await end('a')
  assert.deepEqual([sent, snapshot().state], [['first', 'a', 'b'], 'closed'])
})

test('a gate without patience only spares a lost server the retries', async () => {
  const { lose, send, sent, outcomes } = setUp({ config: { patience: 0 } })
  await lose()
  send('a')
  send('retry', { attempt: 2 })
  await setImmediate()
  assert.deepEqual(sent, ['a'])
  assert.equal(outcomes.get('retry')?.kind, 'rejected')
})

test('a call that is cancelled while it waits leaves the line at once, for its own reason', async () => {
  const { clock, lose, reach, send, sent, outcomes, snapshot } = setUp()
  await lose()
  const signal = new Cancellation()
  send('a', { signal })
  send('b')
  await clock.advance(1_000)
  const reason = gatewayError('deadline_exceeded', 'too late')
  signal.abort(reason)
  await setImmediate()
  assert.deepEqual(outcomes.get('a'), { kind: 'failed', error: reason })
  assert.equal(snapshot().waiting, 1)
  await reach()
  assert.deepEqual(sent, ['b'])
})

test('a call that was cancelled before it came does not wait, and is not sent', async () => {
  const { clock, lose, send, sent, outcomes, snapshot } = setUp()
  await lose()
  const signal = new Cancellation()
  const reason = gatewayError('cancelled', 'not needed any more')
  signal.abort(reason)
  send('a', { signal })
  await setImmediate()
  assert.deepEqual(outcomes.get('a'), { kind: 'failed', error: reason })
  assert.equal(snapshot().waiting, 0)
  await clock.advance(60_000)
  assert.deepEqual(sent, [])
})

test('the line is bounded, and the tenant with the most calls gives way, its latest first', async () => {
  const { lose, send, outcomes, snapshot } = setUp({ config: { queue: 4 } })
  await lose()
  for (let i = 0; i < 4; i++) send(`busy ${i}`, { tenant: 'busy' })
  send('busy 4', { tenant: 'busy' })
  for (let i = 0; i < 3; i++) send(`other ${i}`, { tenant: 'other' })
  await setImmediate()
  assert.match(refusal(outcomes.get('busy 4')) ?? '', /4 of 4 calls wait for it already$/)
  assert.match(refusal(outcomes.get('other 2')) ?? '', /4 of 4 calls wait for it already$/)
  for (const id of ['busy 3', 'busy 2'])
    assert.match(refusal(outcomes.get(id)) ?? '', /calls of other tenants wait for it$/)
  assert.equal(outcomes.has('busy 1'), false)
  assert.equal(snapshot().waiting, 4)
})

test('the requests that wait are bounded in their size, and the tenant with the most bytes gives way', async () => {
  const { lose, send, outcomes, snapshot } = setUp({ config: { maxWaiting: '10KiB' } })
  await lose()
  for (let i = 0; i < 2; i++) send(`large ${i}`, { tenant: 'large', size: 4_000 })
  for (let i = 0; i < 5; i++) send(`small ${i}`, { tenant: 'small', size: 500 })
  await setImmediate()
  assert.match(refusal(outcomes.get('large 1')) ?? '', /calls of other tenants wait for it$/)
  send('huge', { tenant: 'another', size: 20_000 })
  await setImmediate()
  assert.match(refusal(outcomes.get('huge')) ?? '', /hold \d+ of \d+ bytes$/)
  assert.deepEqual([outcomes.has('large 0'), snapshot().waiting], [false, 6])
})

test('no waiting call gives way to a call that still would find no place', async () => {
  const { lose, send, outcomes, snapshot } = setUp({ config: { maxWaiting: '10KiB' } })
  await lose()
  for (let i = 0; i < 8; i++) send(`many ${i}`, { tenant: 'many', size: 1_000 })
  send('large', { tenant: 'another', size: 6_000 })
  await setImmediate()
  assert.equal(outcomes.get('large')?.kind, 'rejected')
  assert.equal(snapshot().waiting, 8)
})

test('a refusal says when to come back', async () => {
  const { lose, send, outcomes } = setUp({ config: { queue: 0 } })
  await lose()
  send('a')
  await setImmediate()
  const outcome = outcomes.get('a')
  assert.ok(outcome?.kind === 'rejected')
  const { reason, retryable, retryAfterMs, sent } = outcome.error
  assert.deepEqual([reason, retryable, retryAfterMs, sent], ['server_lost', true, 500, false])
})

test('a call that was lost twice goes last, and alone', async () => {
  const { clock, lose, reach, send, end, sent } = setUp()
  await lose()
  send('suspect 1', { attempt: 3 })
  send('suspect 2', { attempt: 4 })
  for (const id of ['a', 'b']) send(id)
  await clock.advance(1_000)
  await reach()
  await end('a')
  assert.deepEqual(sent, ['a', 'b'])
  await end('b')
  assert.deepEqual(sent, ['a', 'b', 'suspect 1'])
  await clock.advance(199)
  assert.deepEqual(sent, ['a', 'b', 'suspect 1'])
  await clock.advance(1)
  assert.deepEqual(sent, ['a', 'b', 'suspect 1', 'suspect 2'])
})

test('with several replicas calls go on as long as one of them is not lost', async () => {
  const { lostReplicas, send, end, snapshot } = setUp({ replicas: 3 })
  const lose = async (replica: number) => {
    lostReplicas.add(replica)
    const call = send(`to ${replica}`)
    call.record.replica = replica
    await end(`to ${replica}`, lost)
  }
  await lose(0)
  await lose(1)
  assert.equal(snapshot().state, 'closed')
  await lose(2)
  assert.equal(snapshot().state, 'open')
})

test('one replica that is back is enough for the calls that wait', async () => {
  const { clock, lostReplicas, probes, send, end, sent, snapshot } = setUp({ replicas: 2 })
  lostReplicas.add(0).add(1)
  send('first')
  await end('first', lost)
  send('a')
  await clock.advance(1_000)
  assert.equal(probes.length, 2)
  probes[1]?.(true)
  await setImmediate()
  assert.deepEqual(sent, ['first', 'a'])
  await end('a')
  assert.equal(snapshot().state, 'closed')
})

test('without probes a call tries after a pause, and the others wait for it', async () => {
  const { clock, lose, send, end, sent } = setUp({ isProbed: false })
  await lose()
  for (const id of ['a', 'b', 'c']) send(id)
  await clock.advance(49)
  assert.deepEqual(sent, [])
  await clock.advance(1)
  assert.deepEqual(sent, ['a'])
  await end('a', lost)
  await clock.advance(74)
  assert.deepEqual(sent, ['a'])
  await clock.advance(1)
  assert.deepEqual(sent, ['a', 'b'])
  await end('b')
  assert.deepEqual(sent, ['a', 'b', 'c'])
})

test('a probe that was asked for before a new loss says nothing', async () => {
  const { clock, lose, probes, lostReplicas, send, end, sent, snapshot } = setUp()
  await lose()
  const [early] = probes.splice(0)
  send('a')
  await clock.advance(20_000)
  await end('a')
  assert.equal(snapshot().state, 'closed')
  await clock.advance(1)
  lostReplicas.add(0)
  send('b')
  await end('b', lost)
  send('c')
  early?.(true)
  await clock.advance(1_000)
  assert.deepEqual([sent, snapshot().state], [['a', 'b'], 'open'])
})

test('a server that a reload has put in the place of a lost one is probed in its stead', async () => {
  const { clock, lose, probes, send, sent } = setUp()
  await lose()
  await clock.advance(1_000)
  send('a')
  const [old] = probes.splice(0)
  old?.(false)
  await setImmediate()
  assert.deepEqual([probes.length, sent], [1, []])
  probes[0]?.(true)
  await setImmediate()
  assert.deepEqual(sent, ['a'])
})

test('tenants take turns, however many calls one of them has in line', async () => {
  const { clock, lose, reach, send, end, sent } = setUp()
  await lose()
  await clock.advance(1_000)
  for (const id of ['a1', 'a2', 'a3', 'a4']) send(id, { tenant: 'a' })
  send('b1', { tenant: 'b' })
  send('c1', { tenant: 'c' })
  await reach()
  await end('a1')
  assert.deepEqual(sent.slice(0, 3), ['a1', 'b1', 'c1'])
})

test('calls that hang keep nobody in line: what has not failed for 200 ms lets two more go', async () => {
  const { clock, lose, reach, send, sent } = setUp()
  await lose()
  await clock.advance(1_000)
  for (let nth = 0; nth < 15; nth++) send(`${nth}`)
  await reach()
  for (const count of [1, 3, 7, 15]) {
    assert.equal(sent.length, count)
    await clock.advance(200)
  }
})

test('a call that may be what ends its server gets its turn, and others wait for it', async () => {
  const { clock, lose, reach, send, sent } = setUp()
  await lose()
  await clock.advance(1_000)
  send('suspect', { attempt: 3 })
  send('first')
  await reach()
  for (let nth = 0; nth < 9; nth++) {
    await clock.advance(100)
    send(`${nth}`)
  }
  assert.ok(!sent.includes('suspect'))
  await clock.advance(100)
  send('late')
  await clock.advance(200)
  assert.deepEqual(sent.slice(-2), ['8', 'suspect'])
  await clock.advance(200)
  assert.deepEqual(sent.slice(-2), ['suspect', 'late'])
})

test('patience grows with the longest recent outage, up to maxPatience', async () => {
  const { clock, lose, reach, send, end, snapshot } = setUp({
    config: { patience: '10s', maxPatience: '40s' },
  })
  const outage = async (ms: number) => {
    await clock.advance(1)
    await lose()
    await clock.advance(ms)
    send(`after ${ms}`)
    await reach()
    await end(`after ${ms}`)
    return snapshot().patience
  }
  assert.deepEqual(await outage(2_000), { ms: 10_000, why: 'as configured (10s)' })
  assert.deepEqual(await outage(12_000), {
    ms: 18_000,
    why: 'its longest of 2 recent outages took 12s',
  })
  assert.equal((await outage(39_000)).ms, 40_000)
  for (let i = 0; i < 5; i++) await outage(1_000)
  assert.equal(snapshot().patience.ms, 10_000)
})

test('an outage that nobody would have waited for teaches nothing', async () => {
  const { clock, lose, reach, send, end, snapshot } = setUp()
  await lose()
  await clock.advance(600_000)
  send('a')
  await reach()
  await end('a')
  assert.equal(snapshot().patience.ms, 20_000)
})

test('events tell once that a server is lost, and once that it is back', async () => {
  const { clock, lose, reach, send, end, told } = setUp()
  await lose()
  for (let i = 0; i < 3; i++) send(`${i}`)
  await clock.advance(1_000)
  await reach()
  await end('0', lost)
  assert.deepEqual(told(), ['open'])
  await clock.advance(1_000)
  await reach()
  for (const id of ['1', '2']) await end(id)
  assert.deepEqual(told(), ['open', 'closed'])
})

test('the time that a call takes is no part of the outage before it', async () => {
  const { clock, lose, reach, send, end, snapshot } = setUp()
  await lose()
  await clock.advance(20_000)
  for (const id of ['a', 'b']) send(id)
  await reach()
  await clock.advance(9_000)
  await end('a')
  assert.equal(snapshot().patience.ms, 30_000)
})

test('a server that is back when nobody waits is taken for back', async () => {
  const { clock, lose, reach, send, sent, told } = setUp()
  await lose()
  await clock.advance(1_000)
  await reach()
  assert.deepEqual(told(), ['open', 'closed'])
  send('a')
  assert.deepEqual(sent, ['a'])
})

test('a snapshot says what waits, since when, and why', async () => {
  const { clock, lose, send, snapshot } = setUp()
  await clock.advance(500)
  await lose()
  const { message } = send('a')
  await clock.advance(1_500)
  assert.deepEqual(snapshot(), {
    tool: '*',
    state: 'open',
    since: clock.wall() - 1_500,
    why: 'upstream_unavailable',
    waiting: 1,
    waitingBytes: message.text.length,
    released: 0,
    patience: { ms: 20_000, why: 'as configured (20s)' },
  })
})

test('metrics show the state of a gate and how many calls wait for it', async () => {
  const { clock, lose, reach, send, gauges } = setUp()
  await lose()
  for (const id of ['a', 'b', 'c']) send(id)
  assert.deepEqual(gauges(), { closed: 0, open: 1, half_open: 0, waiting: 3 })
  await clock.advance(1_000)
  await reach()
  assert.deepEqual(gauges(), { closed: 0, open: 0, half_open: 1, waiting: 2 })
})

test('no timer is left when all calls have ended', async () => {
  const { clock, lose, reach, send, end } = setUp()
  await lose()
  for (const id of ['a', 'b']) send(id)
  await clock.advance(1_000)
  await reach()
  for (const id of ['a', 'b']) await end(id)
  assert.equal(clock.pending, 0)
})

test('calls wait for 20 s unless told otherwise, and contradictions are refused', () => {
  assert.equal(gate.optIn, undefined)
  assert.deepEqual(gate.schema.parse({}), {
    patience: 20_000,
    maxPatience: 45_000,
    giveUp: 120_000,
    queue: 1_024,
    maxWaiting: 64 * 1024 ** 2,
  })
  const refused = gate.schema.safeParse({ patience: '50s' })
  assert.deepEqual(refused.error?.issues[0]?.path, ['maxPatience'])
})

test('a call that hangs since before the latest loss keeps nobody back', async () => {
  const { clock, lose, reach, send, end, sent } = setUp()
  await lose()
  for (const id of ['hangs', 'lost', 'waits', 'waits too']) send(id)
  await clock.advance(1_000)
  await reach()
  await clock.advance(200)
  assert.deepEqual(sent, ['hangs', 'lost', 'waits'])
  await end('lost', lost)
  await clock.advance(1_000)
  await reach()
  assert.deepEqual(sent, ['hangs', 'lost', 'waits', 'waits too'])
})
