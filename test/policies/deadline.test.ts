import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Call, Outcome, Service } from '../../src/mesh/call.ts'
import type { GatewayError } from '../../src/mesh/errors.ts'
import { deadline } from '../../src/policies/deadline.ts'
import { newCall, toolCall } from '../support/caller.ts'
import { testPolicyContext, testScope } from '../support/policy-context.ts'
import { ManualClock } from '../support/manual-clock.ts'

const answer: Outcome = {
  kind: 'answered',
  result: { text: '{}', value: {}, status: 200 },
  verdict: 'unchecked',
}

/** The policy before an upstream that answers after `answerMs`, or gives up when its caller does. */
function setUp(settings: object = {}, answerMs = 0) {
  const clock = new ManualClock()
  const layer = deadline.build(deadline.schema.parse(settings), testPolicyContext(clock), testScope())
  const sent: Call[] = []
  const upstream: Service = (call) => {
    sent.push(call)
    return clock.sleep(answerMs, call.signal).then(
      () => answer,
      (error: GatewayError) => ({ kind: 'failed', error }),
    )
  }
  const outcomes: Outcome[] = []
  const service = layer(upstream)
  const send = (call: Call) => void service(call).then((outcome) => outcomes.push(outcome))
  return { clock, layer, service, send, sent, outcomes }
}

const errorOf = (outcome: Outcome | undefined) =>
  outcome === undefined || outcome.kind === 'answered' ? undefined : outcome.error

test('a call ends when its time is up, with its attempts under way', async () => {
  const { clock, send, sent, outcomes } = setUp({ total: '2s' }, 5_000)
  const call = toolCall('slow')
  send(call)
  await clock.advance(1_999)
  assert.equal(outcomes.length, 0)
  call.record.sent = true
  await clock.advance(1)
  const error = errorOf(outcomes[0])
  assert.equal(error?.reason, 'deadline_exceeded')
  assert.equal(error.message, 'no answer within the deadline of 2s')
  assert.equal(error.sent, true)
  assert.equal(sent[0]?.signal.reason, error)
  assert.equal(call.signal.aborted, false)
})

test('a deadline of the agent ends the call, and counts from its arrival', async () => {
  const { clock, send, sent, outcomes } = setUp({}, 5_000)
  await clock.advance(40)
  send(toolCall('slow', {}, { startedAt: 10, inbound: { 'x-breakwater-deadline-ms': '100' } }))
  assert.deepEqual(sent[0]?.deadline, { at: 110, reserveMs: 50, askedFor: true })
  await clock.advance(69)
  assert.equal(outcomes.length, 0)
  await clock.advance(1)
  assert.equal(errorOf(outcomes[0])?.message, 'no answer within the deadline of 100ms')
})

test('an answer in time passes as it is, and leaves nothing behind', async () => {
  const { clock, send, outcomes } = setUp({}, 99)
  send(toolCall('quick', {}, { inbound: { 'grpc-timeout': '100m' } }))
  await clock.advance(99)
  assert.deepEqual(outcomes, [answer])
  assert.equal(clock.pending, 0)
})

test('a call whose deadline has passed is not sent', async () => {
  const { clock, send, sent, outcomes } = setUp()
  await clock.advance(100)
  send(toolCall('late', {}, { startedAt: 0, inbound: { 'x-breakwater-deadline-ms': '100' } }))
  await clock.advance(0)
  assert.equal(sent.length, 0)
  const [outcome] = outcomes
  assert.equal(outcome?.kind === 'rejected' && outcome.by, 'deadline')
  assert.equal(errorOf(outcome)?.reason, 'deadline_exceeded')
  assert.equal(errorOf(outcome)?.sent, false)
})

const inMeta = (ms: unknown) =>
  newCall({ method: 'tools/call', params: { name: 'x', _meta: { 'dev.breakwater/deadline-ms': ms } } })

const withHeader = (name: string, value: string | string[]) =>
  toolCall('x', {}, { inbound: { [name]: value } })

/** Returns a call's deadline and its reserve. */
function deadlineOf(call: Call, settings: object = {}) {
  const { send, sent } = setUp(settings)
  send(call)
  return sent[0]?.deadline
}

test('every way of naming a deadline works', () => {
  assert.equal(deadlineOf(withHeader('x-breakwater-deadline-ms', '1500'))?.at, 1_500)
  assert.equal(deadlineOf(withHeader('x-breakwater-deadline-ms', '1500.5'))?.at, 1_500.5)
  assert.equal(deadlineOf(withHeader('x-envoy-expected-rq-timeout-ms', '1500'))?.at, 1_500)
  assert.equal(deadlineOf(inMeta(1_500))?.at, 1_500)
  assert.equal(deadlineOf(withHeader('grpc-timeout', '2500m'))?.at, 2_500)
  assert.equal(deadlineOf(withHeader('grpc-timeout', '5S'))?.at, 5_000)
  assert.equal(deadlineOf(withHeader('grpc-timeout', '1M'), { total: '2m' })?.at, 60_000)
  assert.equal(deadlineOf(withHeader('grpc-timeout', '1H'), { total: '2h' })?.at, 3_600_000)
  assert.equal(deadlineOf(withHeader('grpc-timeout', '250000u'))?.at, 250)
  assert.ok(Math.abs((deadlineOf(withHeader('grpc-timeout', '5000000n'))?.at ?? 0) - 5) < 1e-9)
})

test('a deadline counts as the caller’s only if earlier than the operator’s', () => {
  for (const [ms, askedFor] of [
    [4_999, true],
    [5_000, false],
    [60_000, false],
  ] as const)
    assert.equal(deadlineOf(inMeta(ms), { total: '5s' })?.askedFor, askedFor)
  assert.equal(deadlineOf(toolCall('x'))?.askedFor, false)
})

test('the smallest deadline wins, from any source', () => {
  const names = ['x-breakwater-deadline-ms', 'x-envoy-expected-rq-timeout-ms', 'grpc-timeout', 'meta']
  for (const smallest of names) {
    const ms = (name: string) => (name === smallest ? 200 : 300)
    const inbound = {
      'x-breakwater-deadline-ms': `${ms('x-breakwater-deadline-ms')}`,
      'x-envoy-expected-rq-timeout-ms': `${ms('x-envoy-expected-rq-timeout-ms')}`,
      'grpc-timeout': `${ms('grpc-timeout')}m`,
    }
    const params = { name: 'x', _meta: { 'dev.breakwater/deadline-ms': ms('meta') } }
    assert.equal(deadlineOf(newCall({ method: 'tools/call', params, inbound }))?.at, 200, smallest)
  }
})

test('an agent cannot ask for more than the config allows', () => {
  assert.equal(deadlineOf(inMeta(90_000))?.at, 55_000)
  assert.equal(deadlineOf(inMeta(90_000), { total: '5s' })?.at, 5_000)
})

test('malformed and non-positive deadlines are ignored', () => {
  const usual = { at: 55_000, reserveMs: undefined, askedFor: false }
  for (const value of ['', 'soon', '-5', '0', '1e3', 'Infinity', '0x10', ' 5', '9'.repeat(400)])
    assert.deepEqual(deadlineOf(withHeader('x-breakwater-deadline-ms', value)), usual, value)
  for (const value of ['5', 'S', '5s', '-5S', '0m', '1.5S', '123456789m', '5 S'])
    assert.deepEqual(deadlineOf(withHeader('grpc-timeout', value)), usual, value)
  for (const value of ['500', null, 0, -1, {}, true])
    assert.deepEqual(deadlineOf(inMeta(value)), usual, String(value))
  assert.deepEqual(deadlineOf(withHeader('x-breakwater-deadline-ms', ['5', '6'])), usual)
  assert.deepEqual(deadlineOf(newCall({ method: 'tools/list', params: { _meta: 5 } })), usual)
})

test('the server hears of deadlines of agents, or of all deadlines, or of none', () => {
  assert.equal(deadlineOf(toolCall('x'))?.reserveMs, undefined)
  assert.equal(deadlineOf(inMeta(1_000))?.reserveMs, 50)
  assert.equal(deadlineOf(toolCall('x'), { forward: 'always' })?.reserveMs, 50)
  assert.equal(deadlineOf(inMeta(1_000), { forward: 'never' })?.reserveMs, undefined)
})

test('the reserve is at most half of the deadline', () => {
  assert.equal(deadlineOf(inMeta(40))?.reserveMs, 20)
  assert.equal(deadlineOf(inMeta(1_000), { reserve: '200ms' })?.reserveMs, 200)
})

test('the time in which the agent is asked does not count', async () => {
  const { clock, send, outcomes } = setUp({ total: '1s' }, 5_000)
  const call = toolCall('asking')
  send(call)
  await clock.advance(500)
  call.record.asking = 1
  call.record.askingSince = clock.now()
  await clock.advance(10_000)
  assert.equal(outcomes.length, 1, 'the upstream has answered by then')
  assert.equal(outcomes[0]?.kind, 'answered')
})

test('in a fallback call the deadline of the call stands, unless the other tool has to be quicker', async () => {
  const { clock, send, sent } = setUp({ total: '5s' }, 10_000)
  await clock.advance(8_000)
  const sooner = { at: 9_000, reserveMs: 50, askedFor: true }
  const call = toolCall('x', {}, { startedAt: 0, deadline: sooner })
  send(call)
  assert.equal(sent[0], call)
  send(toolCall('x', {}, { startedAt: 0, deadline: { at: 60_000, reserveMs: 50 } }))
  assert.deepEqual(sent[1]?.deadline, { at: 13_000, reserveMs: 50, askedFor: false })
})

test('the default deadline is 55 seconds, with a reserve of 50 ms', () => {
  const extension = { onProgress: 'ignore', maxTotalTimeout: 600_000 }
  assert.deepEqual(deadline.schema.parse({}), { total: 55_000, ...extension, reserve: 50, forward: 'asked' })
  assert.equal(deadline.schema.safeParse({ total: 0 }).success, false)
  assert.equal(deadline.schema.safeParse({ forward: 'sometimes' }).success, false)
})

const progress = {
  jsonrpc: '2.0',
  method: 'notifications/progress',
  params: { progressToken: 'p', progress: 1 },
}

/** A call with a progress token, and optionally with its own deadline. */
const reporting = (ownMs?: number) =>
  newCall({
    method: 'tools/call',
    params: {
      name: 'x',
      _meta: { progressToken: 'p', ...(ownMs !== undefined && { 'dev.breakwater/deadline-ms': ownMs }) },
    },
  })

/** Sends a call whose server reports progress every 3 s. Returns the time and kind of its end. */
async function endOf(settings: object, call: Call) {
  const { clock, send, sent, outcomes } = setUp(settings, 1e9)
  send(call)
  const deadlines: (number | undefined)[] = [sent[0]?.deadline?.at]
  while (outcomes.length === 0) {
    await clock.advance(1_000)
    if (clock.now() % 3_000 !== 0 || outcomes.length > 0) continue
    void sent[0]?.channel.send({ text: JSON.stringify(progress), value: progress })
    deadlines.push(sent[0]?.deadline?.at)
  }
  return { at: clock.now(), message: errorOf(outcomes[0])?.message, deadlines }
}

test('progress moves the deadline where a config says so, up to the longest time, for all who look at it', async () => {
  const settings = { total: '4s', onProgress: 'extend', maxTotalTimeout: '10s' }
  assert.deepEqual(await endOf(settings, reporting()), {
    at: 10_000,
    message: 'no answer within the deadline of 10s',
    deadlines: [4_000, 7_000, 10_000, 10_000],
  })
})

test('progress moves no deadline unless a config says so, nor one that the agent named', async () => {
  const extend = { total: '4s', onProgress: 'extend' }
  const fixed = (ms: number) => `no answer within the deadline of ${ms / 1_000}s`
  for (const [settings, call, ms] of [
    [{ total: '4s' }, reporting(), 4_000],
    [{ total: '4s' }, reporting(20_000), 4_000],
    [extend, toolCall('x'), 4_000],
    [extend, reporting(2_000), 2_000],
    [extend, reporting(9_000), 9_000],
  ] as const) {
    const { at, message } = await endOf(settings, call)
    assert.deepEqual([at, message], [ms, fixed(ms)])
  }
})

test('a call without further progress ends, with the length of the silence', async () => {
  const { clock, send, sent, outcomes } = setUp({ total: '4s', onProgress: 'extend' }, 1e9)
  send(reporting())
  await clock.advance(3_000)
  void sent[0]?.channel.send({ text: JSON.stringify(progress), value: progress })
  await clock.advance(4_000)
  assert.equal(
    errorOf(outcomes[0])?.message,
    'no answer, and no progress for 4s (progress extends the deadline)',
  )
})

test('a fallback call has no longer than the deadline of the first call may become', async () => {
  const { clock, send, sent, outcomes } = setUp({ total: '4s', onProgress: 'extend' }, 1e9)
  send({ ...reporting(), deadline: { at: 6_000, reserveMs: undefined, askedFor: false, latest: 9_000 } })
  while (outcomes.length === 0) {
    await clock.advance(1_000)
    void sent[0]?.channel.send({ text: JSON.stringify(progress), value: progress })
  }
  assert.equal(clock.now(), 9_000)
})
