import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import type { Call, Outcome } from '../../src/mesh/call.ts'
import { gatewayError, type Reason } from '../../src/mesh/errors.ts'
import { adaptiveConcurrency } from '../../src/policies/adaptive-concurrency.ts'
import { toolCall } from '../support/caller.ts'
import { testPolicyContext, testScope } from '../support/policy-context.ts'
import { ManualClock } from '../support/manual-clock.ts'

const answer: Outcome = {
  kind: 'answered',
  result: { text: '{}', value: {}, status: 200 },
  verdict: 'unchecked',
}

const failure = (reason: Reason): Outcome => ({ kind: 'failed', error: gatewayError(reason, 'failed') })

/** A limiter before a server that answers on the test's command, with all calls under way at once. */
function setUp(settings: object) {
  const clock = new ManualClock()
  const context = testPolicyContext(clock)
  const config = adaptiveConcurrency.schema.parse(settings)
  let running: ((outcome: Outcome) => void)[] = []
  const build = (tool: string) =>
    adaptiveConcurrency.build(
      config,
      context,
      testScope({ server: 'search', tool }),
    )(() => new Promise((resolve) => running.push(resolve)))
  const send = (call: Call = toolCall('tool')) => build(call.tool ?? '')(call)
  /** Ends all calls under way, `afterMs` after their start. */
  const end = async (afterMs: number, outcome: Outcome = answer) => {
    await clock.advance(afterMs)
    for (const settle of running) settle(outcome)
    running = []
    await setImmediate()
  }
  /** Fills the limit and ends all calls. */
  const round = async (latencyMs: number, outcome: Outcome = answer) => {
    for (let left = facts().limit; left > 0; left--) void send()
    await end(latencyMs, outcome)
  }
  const facts = () => {
    const [entry] = context.state.list<{
      snapshot(): { limit: number; inFlight: number; latencyMs: number }[]
    }>('adaptive-concurrency')
    return entry![1].snapshot()[0]!
  }
  void build('tool')
  return { clock, build, send, end, round, facts }
}

test('calls above the limit are rejected, whatever tool they are for', async () => {
  const { send, end, facts } = setUp({ initial: 2, min: 2 })
  void send(toolCall('one'))
  void send(toolCall('two'))
  const outcome = await send(toolCall('three'))
  assert.ok(outcome.kind === 'rejected')
  assert.equal(outcome.by, 'adaptiveConcurrency')
  assert.equal(outcome.error.reason, 'concurrency_limited')
  assert.equal(outcome.error.message, 'concurrency limit for search reached (2 of 2 in flight)')
  assert.equal(outcome.error.retryAfterMs, 50)
  await end(10)
  assert.equal(facts().inFlight, 0)
})

test('the limit follows latency: up while it is steady, down when it rises, up again', async () => {
  const { round, facts } = setUp({ initial: 20 })
  for (let i = 0; i < 5; i++) await round(20)
  const grown = facts().limit
  assert.ok(grown > 25, `${grown}`)
  await round(400)
  const shrunk = facts().limit
  assert.ok(shrunk < grown, `${shrunk}`)
  for (let i = 0; i < 10; i++) await round(20)
  assert.ok(facts().limit >= grown, `${facts().limit}`)
})

test('timeouts and rate limits of the server reduce the limit, other failures do not', async () => {
  for (const [reason, expected] of [
    ['attempt_timeout', 18],
    ['upstream_rate_limited', 18],
    ['upstream_disconnected', 20],
    ['cancelled', 20],
  ] as const) {
    const { round, facts } = setUp({})
    await round(1_000, failure(reason))
    assert.equal(facts().limit, expected, reason)
  }
})

test('an agent with a deadline below the usual latency cannot shrink the limit for all', async () => {
  const { send, end, facts } = setUp({})
  void send()
  await end(100)
  for (let i = 0; i < 9; i++) {
    void send()
    await end(20, failure('deadline_exceeded'))
  }
  assert.equal(facts().limit, 20)
  void send()
  await end(100, failure('deadline_exceeded'))
  assert.equal(facts().limit, 18)
})

test('errors of the server, which come fast, are no sign of low latency', async () => {
  const { round, facts } = setUp({})
  const error = { code: -32603, message: 'broken' }
  await round(1, {
    kind: 'answered',
    result: { text: '', value: { error }, status: 200 },
    verdict: 'rpc_error',
  })
  assert.deepEqual(facts(), { limit: 20, inFlight: 0, latencyMs: 0 })
})

test('the time for which the agent was asked does not count as latency', async () => {
  const { send, end, facts } = setUp({})
  const call = toolCall('tool')
  void send(call)
  call.record.askedMs += 900
  await end(1_000)
  assert.equal(facts().latencyMs, 100)
})

test('a defect further in gives the place back', async () => {
  const context = testPolicyContext()
  const config = adaptiveConcurrency.schema.parse({ initial: 1, min: 1 })
  let broken: 'throws' | 'rejects' | 'works' = 'throws'
  const service = adaptiveConcurrency.build(
    config,
    context,
    testScope(),
  )(() => {
    if (broken === 'throws') throw new Error('a defect')
    return broken === 'rejects' ? Promise.reject(new Error('a defect')) : Promise.resolve(answer)
  })
  assert.throws(() => void service(toolCall('tool')), /a defect/)
  broken = 'rejects'
  await assert.rejects(service(toolCall('tool')), /a defect/)
  broken = 'works'
  assert.equal(await service(toolCall('tool')), answer)
})

test('bounds that contradict each other are refused', () => {
  const { schema } = adaptiveConcurrency
  const message = (settings: object) => schema.safeParse(settings).error?.issues[0]?.message
  assert.equal(message({ min: 300 }), 'min must not exceed max (200)')
  assert.equal(message({ min: 30 }), 'initial must be at least min (30)')
  assert.equal(message({ max: 10 }), 'initial must not exceed max (10)')
  assert.deepEqual(schema.parse({}), {
    initial: 20,
    min: 4,
    max: 200,
    smoothing: 0.2,
    tolerance: 1.5,
    window: 600,
  })
})
