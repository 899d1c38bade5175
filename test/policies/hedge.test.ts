import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Call, Outcome } from '../../src/mesh/call.ts'
import { Cancellation } from '../../src/mesh/cancel.ts'
import { gatewayError } from '../../src/mesh/errors.ts'
import { hedge } from '../../src/policies/hedge.ts'
import { toolCall } from '../support/caller.ts'
import { testPolicyContext, testScope } from '../support/policy-context.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { hedged } from './retry/hedged.ts'
import { answer, failed, rejected, rpcError, slow } from './retry/scripted.ts'
import { hedges } from '../../src/policies/retry/tries.ts'

const reasonOf = (outcome: Outcome | undefined) => (outcome?.kind === 'failed' ? outcome.error : undefined)

test('a call that is answered in time is sent once, and leaves no timer behind', async () => {
  const { clock, send, told, tries } = hedged([99])
  const call = toolCall('tool')
  send(call)
  await clock.advance(99)
  assert.deepEqual(told, [answer])
  assert.equal(tries.length, 1)
  assert.equal(clock.pending, 0)
  assert.equal(hedges.of(call.record), 0)
})

test('a call without an answer in time is sent once more, and the faster answer counts', async () => {
  const { clock, send, told, tries, at } = hedged([10_000, 50])
  const call = { ...toolCall('tool'), headers: {} }
  send(call)
  await clock.advance(149)
  assert.equal(told.length, 0)
  await clock.advance(1)
  assert.deepEqual(told, [answer])
  assert.deepEqual(at, [0, 100])
  assert.deepEqual(
    tries.map(({ attempt, headers }) => [attempt, headers]),
    [
      [1, {}],
      [2, { 'x-breakwater-attempt': '2' }],
    ],
  )
  assert.equal(hedges.of(call.record), 1)
})

test('the slower try is cancelled, the first or the second, and the call is not', async () => {
  for (const [ms, loser] of [
    [[10_000, 50], 0],
    [[150, 10_000], 1],
  ] as const) {
    const { clock, send, told, tries, budget } = hedged([...ms])
    const call = toolCall('tool')
    send(call)
    await clock.advance(150)
    assert.deepEqual(told, [answer])
    const { signal } = tries[loser] as Call
    assert.deepEqual(signal.reason, gatewayError('cancelled', 'the other try was faster'))
    assert.equal(tries[1 - loser]?.signal.aborted, false)
    assert.equal(call.signal.aborted, false)
    assert.equal(clock.pending, 0)
    assert.deepEqual(
      budget().map(({ retrying, withdrawals }) => [retrying, withdrawals]),
      [
        [0, 1],
        [0, 1],
      ],
    )
  }
})

test('a try that fails before the other has been sent ends the call', async () => {
  const failure = failed('bad_reply')
  const { clock, send, told, tries } = hedged([50], { outcomes: [failure] })
  send(toolCall('tool'))
  await clock.advance(1_000)
  assert.deepEqual(told, [failure])
  assert.equal(tries.length, 1)
  assert.equal(clock.pending, 0)
})

test('when one try fails the other is waited for', async () => {
  for (const [ms, outcomes] of [
    [
      [150, 300],
      [failed('bad_reply'), answer],
    ],
    [
      [400, 150],
      [answer, rpcError(-32603)],
    ],
    [
      [400, 150],
      [answer, rejected],
    ],
  ]) {
    const { clock, send, told } = hedged(ms as number[], { outcomes: outcomes as Outcome[] })
    send(toolCall('tool'))
    await clock.advance(399)
    assert.equal(told.length, 0)
    await clock.advance(1)
    assert.deepEqual(told, [answer])
  }
})

test('a hedge that our own limits reject is noted in the record', async () => {
  const { clock, send } = hedged([400, 150], { outcomes: [answer, rejected] })
  const call = toolCall('tool')
  send(call)
  await clock.advance(400)
  assert.deepEqual(call.record.supersededRejections, ['bulkhead_full'])
})

test('when both fail, the first failure is reported', async () => {
  const first = failed('bad_reply')
  const { clock, send, told } = hedged([300, 10], { outcomes: [first, failed('upstream_status')] })
  send(toolCall('tool'))
  await clock.advance(300)
  assert.deepEqual(told, [first])
})

test('the error tells that the call may have run when either try may have', async () => {
  const outcomes = [failed('upstream_unavailable', { sent: false }), failed('bad_reply')]
  const { clock, send, told } = hedged([300, 10], { outcomes })
  send(toolCall('tool'))
  await clock.advance(300)
  assert.deepEqual(told, [failed('upstream_unavailable', { sent: true })])
})

test('when the first was rejected and the second failed, the call did reach the server and says so', async () => {
  const second = failed('bad_reply')
  const { clock, send, told } = hedged([150, 150], { outcomes: [rejected, second] })
  send(toolCall('tool'))
  await clock.advance(300)
  assert.deepEqual(told, [second])
})

test('a caller that gives up ends both tries, and nothing is sent after it', async () => {
  for (const givesUpAt of [50, 150]) {
    const { clock, send, told, tries } = hedged([10_000, 10_000])
    const signal = new Cancellation()
    send({ ...toolCall('tool'), signal })
    await clock.advance(givesUpAt)
    const reason = gatewayError('cancelled', 'not needed any more')
    signal.abort(reason)
    await clock.advance(0)
    assert.equal(reasonOf(told[0])?.message, reason.message)
    assert.ok(tries.every((call) => call.signal.aborted))
    assert.equal(clock.pending, 0)
    await clock.advance(1_000)
    assert.equal(tries.length, givesUpAt === 50 ? 1 : 2)
  }
})

test('once a call is over, the end of its caller no longer concerns it', async () => {
  const { clock, send, tries } = hedged([50])
  const signal = new Cancellation()
  send({ ...toolCall('tool'), signal })
  await clock.advance(50)
  signal.abort(gatewayError('cancelled', 'late'))
  assert.equal(tries[0]?.signal.aborted, false)
})

test('a defect under a second try fails the call, and nothing else', async () => {
  const clock = new ManualClock()
  const layer = hedge.build(hedge.schema.parse({ after: 100 }), testPolicyContext(clock), testScope())
  const service = layer((call) => {
    if (call.attempt > 1) throw new Error('a defect')
    return slow(clock, 1_000)(call)
  })
  const failing = assert.rejects(service(toolCall('tool')), /a defect/)
  await clock.advance(100)
  await failing
  assert.equal(clock.pending, 0)
})
