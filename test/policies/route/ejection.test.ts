import assert from 'node:assert/strict'
import { test } from 'node:test'
import { gatewayError } from '../../../src/mesh/errors.ts'
import { estimateOf } from '../../../src/policies/state/estimate.ts'
import { TestCaller } from '../../support/caller.ts'
import { down, failure, open, setUp, up } from './rig.ts'

/** Sends `count` sequential calls to one replica. */
async function hit(rig: ReturnType<typeof setUp>, replica: number, count: number) {
  for (let i = 0; i < count; i++) await rig.run({ replica })
}

test('five failures in a row eject a replica for half a minute, with an event', async () => {
  const rig = setUp([down(), up()])
  await hit(rig, 0, 4)
  assert.equal(rig.loads()[0]?.isEjected(rig.clock.now()), false)
  await hit(rig, 0, 1)
  const [load] = rig.loads()
  assert.equal(load?.snapshot(rig.clock.now()).ejectedForMs, 30_000)
  assert.deepEqual(rig.events, [
    {
      type: 'ejection',
      set: 'default',
      server: 'test',
      detail: { replica: 0, forMs: 30_000, failures: 5, ejections: 1 },
    },
  ])
  const from = rig.sent.length
  await rig.stream(29_000, 100)
  assert.deepEqual(rig.counts(from), [0, 290])
})

test('a replica that can be reached again is taken back before its time, but not again and again', async () => {
  let back = -Infinity
  const rig = setUp([down(), up()], {}, { backAt: (replica) => (replica === 0 ? back : -Infinity) })
  await hit(rig, 0, 5)
  const isOut = () => rig.loads()[0]?.isEjected(rig.clock.now())
  assert.equal(isOut(), true)
  for (let round = 1; round <= 4; round++) {
    await rig.clock.advance(1_000)
    back = rig.clock.now()
    await rig.run({ replica: 1 })
    assert.equal(isOut(), round === 4, `after ${round} ejections`)
    await rig.clock.advance(1_000)
    await hit(rig, 0, 1)
    assert.equal(isOut(), true)
  }
})

test('a success in between begins the count anew', async () => {
  const replicas = [down(), up()]
  const rig = setUp(replicas)
  await hit(rig, 0, 4)
  replicas[0] = up()
  await hit(rig, 0, 1)
  replicas[0] = down()
  await hit(rig, 0, 4)
  assert.equal(rig.events.length, 0)
})

test('after its time one call tries an ejected replica: a failure ejects for longer, up to five minutes', async () => {
  const rig = setUp([down(), up()])
  await hit(rig, 0, 5)
  const lengths = []
  for (let i = 0; i < 12; i++) {
    const ms = rig.loads()[0]?.snapshot(rig.clock.now()).ejectedForMs ?? 0
    lengths.push(ms / 1_000)
    await rig.clock.advance(ms)
    await hit(rig, 0, 1)
  }
  assert.deepEqual(lengths, [30, 60, 90, 120, 150, 180, 210, 240, 270, 300, 300, 300])
})

test('the last replica is never taken out, nor more than allowed', async () => {
  const two = setUp([down(), down()])
  for (const replica of [0, 1]) await hit(two, replica, 20)
  assert.deepEqual(
    two.loads().map((load) => load.isEjected(two.clock.now())),
    [true, false],
  )
  const one = setUp([down()])
  await hit(one, 0, 20)
  assert.equal(one.events.length, 0)
  const four = setUp([down(), down(), down(), down()], { ejection: { maxShare: 0.5 } })
  for (const replica of [0, 1, 2, 3]) await hit(four, replica, 6)
  assert.equal(four.loads().filter((load) => load.isEjected(four.clock.now())).length, 2)
})

test('a caller with too little time does not blame the replica', async () => {
  const soon = setUp([{ ms: 999, outcome: failure('deadline_exceeded') }, up()])
  await hit(soon, 0, 6)
  assert.equal(soon.events.length, 0)
  const late = setUp([{ ms: 1_000, outcome: failure('deadline_exceeded') }, up()])
  await hit(late, 0, 5)
  assert.equal(late.events.length, 1)
})

test('no replica is ejected with ejection off', async () => {
  const rig = setUp([down(), up()], { ejection: false })
  await hit(rig, 0, 20)
  assert.equal(rig.events.length, 0)
})

test('an open breaker sends the call to the others in turn, and to each of them once', async () => {
  const closed = { ms: 0, outcome: open }
  const rig = setUp([closed, closed, up(), closed])
  for (let i = 0; i < 20; i++) assert.equal((await rig.run()).kind, 'answered')
  const none = setUp([closed, closed, closed])
  const { call, done } = none.send()
  await none.clock.advance(0)
  await none.clock.advance(0)
  assert.equal((await done).kind, 'rejected')
  assert.deepEqual(none.counts(), [1, 1, 1])
  assert.equal(call.record.replica, undefined)
  assert.equal(
    none.loads().every(({ inFlight }) => inFlight === 0),
    true,
  )
})

test('a caller stays with the replica that holds its state', async () => {
  const rig = setUp([up(2_000), up(10)], {}, { home: () => 0 })
  for (let i = 0; i < 10; i++) void rig.send()
  assert.deepEqual(rig.counts(), [10, 0])
  const retried = rig.send({ attempt: 2 }).call
  retried.record.replica = 0
  assert.deepEqual(rig.counts(), [11, 0])
})

test('a caller leaves home for good when home fails again while others do not', async () => {
  const left: number[] = []
  const leave = (_: unknown, replica: number) => void left.push(replica)
  const failing = setUp([down(), up()], {}, { home: () => (left.length > 0 ? undefined : 0), leave })
  for (let i = 0; i < 2; i++) assert.equal((await failing.run()).kind, 'failed')
  for (let i = 0; i < 4; i++) assert.equal((await failing.run()).kind, 'answered')
  assert.deepEqual(failing.counts(), [2, 4])
  assert.deepEqual(left, [0])
})

test('no caller leaves home when all replicas fail: home may be the first to come back', async () => {
  const left: number[] = []
  const leave = (_: unknown, replica: number) => void left.push(replica)
  const rig = setUp([down(), down()], {}, { home: () => 0, leave })
  await hit(rig, 1, 1)
  for (let i = 0; i < 10; i++) await rig.run()
  assert.deepEqual(left, [])
  assert.equal(rig.events.length, 0)
})

test('a try that finds no answer at home is followed by one elsewhere', async () => {
  const rig = setUp([down(), up()], {}, { home: () => 0 })
  const { call, done } = rig.send()
  await rig.clock.advance(100)
  assert.equal((await done).kind, 'failed')
  const again = rig.service({ ...call, attempt: 2 })
  await rig.clock.advance(100)
  assert.equal((await again).kind, 'answered')
  assert.deepEqual(rig.counts(), [1, 1])
  await rig.run()
  assert.deepEqual(rig.counts(), [2, 1])
})

test('callers without a home get one where the fewest are', async () => {
  const homes = [3, 0, 1]
  const rig = setUp([up(), up(), up()], {}, { homes: () => homes })
  await rig.run()
  assert.deepEqual(rig.counts(), [0, 1, 0])
  homes[1] = 5
  await rig.run()
  assert.deepEqual(rig.counts(), [0, 1, 1])
})

test('a caller leaves home for a call whose breaker there is open', async () => {
  const broken = setUp([{ ms: 0, outcome: open }, up()], {}, { home: () => 0 })
  assert.equal((await broken.run()).kind, 'answered')
  assert.deepEqual(broken.counts(), [1, 1])
})

test('without affinity a caller has no home', async () => {
  const rig = setUp([up(2_000), up(10)], { affinity: 'none' }, { home: () => 0 })
  await rig.stream(5_000, 50)
  assert.ok((rig.counts()[1] ?? 0) > 90)
})

test('an ejected replica is better than none', async () => {
  const rig = setUp([up(), up()])
  for (const load of rig.loads()) load.ejectedUntil = 1_000
  assert.equal((await rig.run()).kind, 'answered')
})

test('a failure without blame ejects no replica', async () => {
  for (const reason of [
    'cancelled',
    'overloaded',
    'internal',
    'upstream_refused',
    'upstream_unauthorized',
    'upstream_forbidden',
    'session_lost',
  ] as const) {
    const outcome = { kind: 'failed', error: gatewayError(reason, 'scripted') } as const
    const rig = setUp([{ ms: 1, outcome }, up()])
    await hit(rig, 0, 10)
    assert.equal(rig.events.length, 0, reason)
  }
})

test('a caller with a short deadline ejects no replica, and its wait is learned', async () => {
  const rig = setUp([{ ms: 2_000, outcome: failure('deadline_exceeded') }, up()])
  const deadline = { at: 2_000, reserveMs: undefined, askedFor: true }
  for (let n = 0; n < 20; n++) await rig.run({ replica: 0, deadline })
  assert.equal(rig.events.length, 0)
  const now = rig.clock.now()
  assert.ok((rig.loads()[0]?.snapshot(now).cost ?? 0) > 0)
  assert.ok((estimateOf(rig.context, rig.scope, 0).chanceWithin(1_000, now) ?? 1) < 0.1)
})

test('wrong requests of one caller neither take a replica out nor bring a replica back', async () => {
  const replicas = [down(), up()]
  const rig = setUp(replicas)
  await hit(rig, 0, 4)
  const value = { error: { code: -32602, message: 'no' } }
  const result = { text: '{}', value, status: 200 }
  replicas[0] = { ms: 1, outcome: { kind: 'answered', result, verdict: 'rpc_error' } }
  await hit(rig, 0, 10)
  assert.equal(rig.events.length, 0)
  replicas[0] = down()
  await hit(rig, 0, 1)
  assert.equal(rig.events.length, 1)
})

test('a replica that turns requests down at once draws no more calls for it', async () => {
  const rig = setUp([{ ms: 1, outcome: failure('upstream_refused') }, up(50)])
  await rig.stream(2_000, 20)
  const from = rig.sent.length
  await rig.stream(5_000, 20)
  const [refusing = 0, well = 0] = rig.counts(from)
  assert.ok(well > 0.8 * (refusing + well), `${refusing} of ${refusing + well} calls went to the refuser`)
})

test('a caller placed while replicas were unreachable is placed once more when they are back', async () => {
  let home: number | undefined = 0
  const homes = [4, 0]
  const left: number[] = []
  let backAt = -Infinity
  const rig = setUp(
    [up(), up()],
    {},
    {
      home: () => (left.length > 0 ? undefined : home),
      homes: () => homes,
      leave: (_, replica) => void left.push(replica),
      backAt: (replica) => (replica === 1 ? backAt : -Infinity),
    },
  )
  const caller = new TestCaller()
  // Placed while the other replica fails.
  const load = rig.loads()[1]!
  load.failures = 3
  load.failedAt = rig.clock.now()
  home = undefined
  await rig.run({ caller })
  assert.deepEqual(rig.counts(), [1, 0])
  home = 0
  await rig.run({ caller })
  assert.deepEqual([rig.counts(), left], [[2, 0], []])
  await rig.clock.advance(100)
  backAt = rig.clock.now()
  await rig.run({ caller: new TestCaller() })
  assert.deepEqual(left, [], 'a caller with a home stays')
  await rig.run({ caller })
  assert.deepEqual([rig.counts(), left], [[3, 1], [0]])
})

test('a caller that has to know of the loss of a session is never moved silently', async () => {
  const left: number[] = []
  const rig = setUp(
    [down(), up()],
    {},
    { home: () => 0, mayMove: () => false, leave: (_, replica) => void left.push(replica) },
  )
  for (let i = 0; i < 10; i++) await rig.run()
  assert.deepEqual([rig.counts(), left], [[10, 0], []])
})
