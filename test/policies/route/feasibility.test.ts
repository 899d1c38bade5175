import assert from 'node:assert/strict'
import { test } from 'node:test'
import { gatewayError } from '../../../src/mesh/errors.ts'
import { Cancellation } from '../../../src/mesh/cancel.ts'
import { estimateOf } from '../../../src/policies/state/estimate.ts'
import { failure, setUp, up } from './rig.ts'
import { deadlineInfeasible, infeasible } from '../../../src/policies/route/feasibility.ts'

type Rig = ReturnType<typeof setUp>

/** Teaches a replica's estimate that calls take `ms`. */
function teach({ context, scope, clock }: Rig, replica: number, ms: number, count = 50) {
  const estimate = estimateOf(context, scope, replica)
  for (let i = 0; i < count; i++) estimate.record(ms, clock.now())
}

/** Call parts with a deadline in `ms`. */
const within = (rig: Rig, ms: number) => ({ deadline: { at: rig.clock.now() + ms, reserveMs: 50 } })

for (const replicas of [1, 2])
  test(`with ${replicas} replicas a call that will miss its deadline is counted, and sent`, () => {
    const rig = setUp(Array.from({ length: replicas }, () => up(2_000)))
    for (let i = 0; i < replicas; i++) teach(rig, i, 2_000)
    assert.equal(infeasible.of(rig.send(within(rig, 1_000)).call.record), true)
    assert.equal(infeasible.of(rig.send(within(rig, 3_000)).call.record), false)
    assert.equal(infeasible.of(rig.send().call.record), false)
    assert.equal(rig.sent.length, 3)
  })

for (const replicas of [1, 2])
  test(`with ${replicas} replicas an infeasible call is rejected where enforced, with the reason`, async () => {
    const rig = setUp(
      Array.from({ length: replicas }, () => up(2_000)),
      { feasibility: 'enforce' },
    )
    for (let i = 0; i < replicas; i++) teach(rig, i, 2_000)
    const { call, done } = rig.send(within(rig, 1_000))
    const outcome = await done
    assert.deepEqual(outcome, {
      kind: 'rejected',
      error: gatewayError(deadlineInfeasible, 'estimate: 0 % chance of an answer within the remaining 1s'),
      by: 'route',
    })
    assert.equal(infeasible.of(call.record), true)
    assert.equal(rig.sent.length, 0)
  })

test('with feasibility off, the estimate is not asked', () => {
  const rig = setUp([up(2_000)], { feasibility: 'off' })
  teach(rig, 0, 2_000)
  assert.equal(infeasible.of(rig.send(within(rig, 1_000)).call.record), false)
})

test('a replica that meets the deadline is preferred to a less loaded replica', async () => {
  const rig = setUp([up(2_000), up(90)], { feasibility: 'enforce' })
  teach(rig, 0, 2_000)
  teach(rig, 1, 90)
  for (let i = 0; i < 10; i++) void rig.send(within(rig, 1_000))
  assert.deepEqual(rig.counts(), [0, 10])
})

test('a caller that has a home is not sent elsewhere for its deadline', async () => {
  const rig = setUp([up(2_000), up(90)], { feasibility: 'enforce' }, { home: () => 0 })
  teach(rig, 0, 2_000)
  teach(rig, 1, 90)
  assert.equal((await rig.send(within(rig, 1_000)).done).kind, 'rejected')
})

test('an infeasible tool is tried now and then, to notice a faster tool', async () => {
  const replicas = [up(2_000)]
  const rig = setUp(replicas, { feasibility: 'enforce' })
  await rig.stream(30_000, 50, () => within(rig, 5_000))
  let from = rig.sent.length
  await rig.stream(10_000, 50, () => within(rig, 1_000))
  assert.equal(rig.sent.length - from, 6)
  replicas[0] = up(90)
  await rig.stream(240_000, 50, () => within(rig, 1_000))
  from = rig.sent.length
  await rig.stream(5_000, 50, () => within(rig, 1_000))
  assert.equal(rig.sent.length - from, 100)
})

test('calls that their deadline ended make it infeasible as well', async () => {
  const rig = setUp([{ ms: 1_000, outcome: failure('deadline_exceeded') }], { feasibility: 'enforce' })
  for (let i = 0; i < 10; i++) await rig.run(within(rig, 1_000))
  assert.equal((await rig.send(within(rig, 1_000)).done).kind, 'rejected')
})

test('calls that agents gave up make a tool infeasible as well, except for unsent calls', async () => {
  for (const [sent, chance] of [
    [true, 0],
    [false, undefined],
  ] as const) {
    const rig = setUp([up(5_000)])
    const signal = new Cancellation()
    const calls = Array.from({ length: 20 }, () => rig.send({ signal }))
    for (const { call } of calls) call.record.sent = sent
    await rig.clock.advance(2_000)
    signal.abort(gatewayError('cancelled', 'enough'))
    await Promise.all(calls.map(({ done }) => done))
    assert.equal(estimateOf(rig.context, rig.scope, 0).chanceWithin(1_500, rig.clock.now()), chance)
  }
})

for (const replicas of [1, 2])
  test(`with ${replicas} replicas time in which the agent was asked is no time of the server`, async () => {
    const rig = setUp(Array.from({ length: replicas }, () => up(1_000)))
    for (let i = 0; i < 20; i++) {
      const { call, done } = rig.send({ replica: 0 })
      call.record.askedMs = 900
      await rig.clock.advance(1_000)
      await done
    }
    assert.equal(estimateOf(rig.context, rig.scope, 0).chanceWithin(150, rig.clock.now()), 1)
  })

test('an error that came at once does not make a slow tool look fast', async () => {
  const rig = setUp([{ ms: 1, outcome: failure('upstream_unavailable') }])
  for (let i = 0; i < 20; i++) await rig.run()
  assert.equal(estimateOf(rig.context, rig.scope, 0).chanceWithin(100, rig.clock.now()), undefined)
})
