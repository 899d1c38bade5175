import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Call, Outcome, Service } from '../../src/mesh/call.ts'
import { Cancellation } from '../../src/mesh/cancel.ts'
import { gatewayError, type GatewayError } from '../../src/mesh/errors.ts'
import { attemptTimeout } from '../../src/policies/attempt-timeout.ts'
import { toolCall } from '../support/caller.ts'
import { testPolicyContext, testScope } from '../support/policy-context.ts'
import { ManualClock } from '../support/manual-clock.ts'

const answer: Outcome = {
  kind: 'answered',
  result: { text: '{}', value: {}, status: 200 },
  verdict: 'unchecked',
}

/** An upstream that answers after `answerMs`, or gives up when it is told to. */
function upstream(clock: ManualClock, answerMs: number): Service {
  return (call) =>
    clock.sleep(answerMs, call.signal).then(
      () => answer,
      (error: GatewayError) => ({ kind: 'failed', error }),
    )
}

/** What becomes of a call, as soon as that is known. */
function setUp(timeout: string | number, answerMs: number) {
  const clock = new ManualClock()
  const layer = attemptTimeout.build(
    attemptTimeout.schema.parse({ timeout }),
    testPolicyContext(clock),
    testScope(),
  )
  const service = layer(upstream(clock, answerMs))
  const outcomes: Outcome[] = []
  const send = (call: Call) => void service(call).then((outcome) => outcomes.push(outcome))
  return { clock, service, send, outcomes }
}

const reasonOf = (outcome: Outcome | undefined) => (outcome?.kind === 'failed' ? outcome.error : undefined)

test('an attempt ends when its time is up, and not before', async () => {
  const { clock, send, outcomes } = setUp('2s', 5_000)
  send(toolCall('slow'))
  await clock.advance(1_999)
  assert.equal(outcomes.length, 0)
  await clock.advance(1)
  assert.equal(reasonOf(outcomes[0])?.reason, 'attempt_timeout')
  assert.equal(reasonOf(outcomes[0])?.message, 'no answer within 2s')
})

test('the error tells whether the request was sent by then', async () => {
  for (const sent of [true, false]) {
    const { clock, send, outcomes } = setUp(100, 1_000)
    const call = toolCall('slow')
    send(call)
    await clock.advance(50)
    call.record.sent = sent
    await clock.advance(50)
    assert.equal(reasonOf(outcomes[0])?.sent, sent)
  }
})

test('an answer in time passes as it is, and leaves nothing behind', async () => {
  const { clock, send, outcomes } = setUp(100, 99)
  const signal = new Cancellation()
  const call = { ...toolCall('quick'), signal }
  send(call)
  await clock.advance(99)
  assert.deepEqual(outcomes, [answer])
  await clock.advance(1)
  assert.equal(clock.pending, 0)
  signal.abort(gatewayError('cancelled', 'late'))
  assert.equal(outcomes.length, 1)
})

test('when the caller gives up, so does the attempt, for the reason that the caller had', async () => {
  const { clock, send, outcomes } = setUp(100, 1_000)
  const signal = new Cancellation()
  send({ ...toolCall('slow'), signal })
  const reason = gatewayError('cancelled', 'not needed any more')
  signal.abort(reason)
  await clock.advance(0)
  assert.equal(reasonOf(outcomes[0]), reason)
})

test('an attempt for a caller that gave up before is over at once', async () => {
  const { clock, send, outcomes } = setUp(100, 1_000)
  const signal = new Cancellation()
  const reason = gatewayError('cancelled', 'too late')
  signal.abort(reason)
  send({ ...toolCall('slow'), signal })
  await clock.advance(0)
  assert.equal(reasonOf(outcomes[0]), reason)
})

test('a timeout does not abort the call itself: another attempt may follow', async () => {
  const { clock, service, send, outcomes } = setUp(100, 1_000)
  const call = toolCall('slow')
  send(call)
  await clock.advance(100)
  assert.equal(call.signal.aborted, false)
  void service(call).then((outcome) => outcomes.push(outcome))
  await clock.advance(99)
  assert.equal(outcomes.length, 1)
  await clock.advance(1)
  assert.equal(outcomes.length, 2)
})

test('attempts at the same time have a time each', async () => {
  const { clock, send, outcomes } = setUp(100, 1_000)
  send(toolCall('one'))
  await clock.advance(60)
  send(toolCall('two'))
  await clock.advance(40)
  assert.equal(outcomes.length, 1)
  await clock.advance(60)
  assert.equal(outcomes.length, 2)
})

test('a minute unless told otherwise, and never less than a millisecond', () => {
  assert.deepEqual(attemptTimeout.schema.parse({}), { timeout: 60_000 })
  assert.equal(attemptTimeout.schema.safeParse({ timeout: 0 }).success, false)
  assert.equal(attemptTimeout.schema.safeParse({ timeout: '1ms', other: 1 }).success, false)
})
