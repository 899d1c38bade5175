import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Call, Channel, Deadline, Outcome, Service } from '../../src/mesh/call.ts'
import { Cancellation } from '../../src/mesh/cancel.ts'
import { gatewayError, type GatewayError } from '../../src/mesh/errors.ts'
import { pauseDeadline } from '../../src/mesh/pause-deadline.ts'
import { attemptTimeout } from '../../src/policies/attempt-timeout.ts'
import { newCall, toolCall } from '../support/caller.ts'
import { testPolicyContext, testScope } from '../support/policy-context.ts'
import { ManualClock } from '../support/manual-clock.ts'

const answer: Outcome = {
  kind: 'answered',
  result: { text: '{}', value: {}, status: 200 },
  verdict: 'unchecked',
}

/** An upstream that answers after `answerMs`, or gives up when its caller does. */
function upstream(clock: ManualClock, answerMs: number): Service {
  return (call) =>
    clock.sleep(answerMs, call.signal).then(
      () => answer,
      (error: GatewayError) => ({ kind: 'failed', error }),
    )
}

/** Returns a call's outcome as soon as the call ends. */
function setUp(timeout: string | number, answerMs: number, more: object = {}) {
  const clock = new ManualClock()
  const layer = attemptTimeout.build(
    attemptTimeout.schema.parse({ timeout, ...more }),
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

test('the timeout is a minute by default, and never less than a millisecond', () => {
  const usual = { timeout: 60_000, onProgress: 'extend', maxTotalTimeout: 600_000 }
  assert.deepEqual(attemptTimeout.schema.parse({}), usual)
  assert.equal(attemptTimeout.schema.safeParse({ timeout: 0 }).success, false)
  assert.equal(attemptTimeout.schema.safeParse({ timeout: '1ms', other: 1 }).success, false)
})

/** A call with a progress token; its server reports progress to a try, and `service` passes the progress on. */
function reporting(clock: ManualClock, answerMs: number) {
  const channels: Channel[] = []
  const notification = {
    jsonrpc: '2.0',
    method: 'notifications/progress',
    params: { progressToken: 'p', progress: 1 },
  }
  const server: Service = (call) => {
    channels.push(call.channel)
    return upstream(clock, answerMs)(call)
  }
  const report = (attempt = 0, progressToken: unknown = 'p') => {
    const value = { ...notification, params: { progressToken, progress: 1 } }
    void channels[attempt]?.send({ text: JSON.stringify(value), value })
  }
  const call = () =>
    newCall({ method: 'tools/call', params: { name: 'slow', arguments: {}, _meta: { progressToken: 'p' } } })
  return { server, report, call }
}

/** The same with the policy in front. */
function setUpReporting(settings: object, deadline?: Deadline) {
  const clock = new ManualClock()
  const { server, report, call } = reporting(clock, 1e9)
  const parsed = attemptTimeout.schema.parse(settings)
  const service = attemptTimeout.build(parsed, testPolicyContext(clock), testScope())(server)
  const outcomes: Outcome[] = []
  const send = (one: Call = call()) =>
    void service({ ...one, deadline }).then((outcome) => outcomes.push(outcome))
  return { clock, report, send, outcomes }
}

test('progress gives an attempt its whole time anew, up to the longest time', async () => {
  const { clock, report, send, outcomes } = setUpReporting({ timeout: '4s', maxTotalTimeout: '30s' })
  send()
  for (let n = 0; n < 9; n++) {
    await clock.advance(3_000)
    report()
  }
  await clock.advance(2_999)
  assert.equal(outcomes.length, 0)
  await clock.advance(1)
  assert.equal(clock.now(), 30_000)
  assert.equal(reasonOf(outcomes[0])?.reason, 'attempt_timeout')
  assert.equal(reasonOf(outcomes[0])?.message, 'no answer within 30s, despite progress')
  assert.equal(clock.pending, 0)
})

test('an attempt ends when its progress has stopped for as long as its time', async () => {
  const { clock, report, send, outcomes } = setUpReporting({ timeout: '4s' })
  send()
  await clock.advance(3_000)
  report()
  await clock.advance(3_999)
  assert.equal(outcomes.length, 0)
  await clock.advance(1)
  assert.equal(reasonOf(outcomes[0])?.message, 'no answer, and no progress for 4s')
})

test('progress changes nothing when ignored by config, or not requested by the agent', async () => {
  for (const [settings, call] of [
    [{ timeout: '4s', onProgress: 'ignore' }, undefined],
    [{ timeout: '4s' }, toolCall('slow')],
    [{ timeout: '4s', maxTotalTimeout: '1s' }, undefined],
  ] as const) {
    const { clock, report, send, outcomes } = setUpReporting(settings)
    send(call)
    await clock.advance(3_000)
    report()
    await clock.advance(1_000)
    assert.equal(reasonOf(outcomes[0])?.message, 'no answer within 4s')
  }
})

test('progress under another token changes nothing', async () => {
  for (const token of ['q', 0, null, {}]) {
    const { clock, report, send, outcomes } = setUpReporting({ timeout: '4s' })
    send()
    await clock.advance(3_000)
    report(0, token)
    await clock.advance(1_000)
    assert.equal(reasonOf(outcomes[0])?.message, 'no answer within 4s')
  }
})

test('the progress of one attempt extends no other one', async () => {
  const { clock, report, send, outcomes } = setUpReporting({ timeout: '4s' })
  send()
  send()
  await clock.advance(3_000)
  report(1)
  await clock.advance(1_000)
  assert.equal(outcomes.length, 1)
})

test('a deadline that progress may move past the timeout leaves it in force', async () => {
  for (const [latest, ends] of [
    [60_000, 1],
    [undefined, 0],
  ] as const) {
    const deadline = {
      at: 3_000,
      reserveMs: undefined,
      askedFor: false,
      ...(latest !== undefined && { latest }),
    }
    const { clock, send, outcomes } = setUpReporting({ timeout: '4s' }, deadline)
    send()
    await clock.advance(4_000)
    assert.equal(outcomes.length, ends)
  }
})

test('progress while the agent is asked gives the whole time anew from then on', async () => {
  const { clock, report, send, outcomes } = setUpReporting({ timeout: '4s' })
  const { call } = reporting(clock, 0)
  const asking = call()
  send(asking)
  await clock.advance(1_000)
  const { answer } = pauseDeadline(asking.record, clock, () => Promise.resolve())
  await clock.advance(10_000)
  report()
  await clock.advance(10_000)
  await answer('{}')
  await clock.advance(3_999)
  assert.equal(outcomes.length, 0)
  await clock.advance(1)
  assert.equal(outcomes.length, 1)
})
