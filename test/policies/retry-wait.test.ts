import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Call, Outcome } from '../../src/mesh/call.ts'
import { Cancellation } from '../../src/mesh/cancel.ts'
import { gatewayError } from '../../src/mesh/errors.ts'
import type { PolicyContext } from '../../src/mesh/policy.ts'
import { retry } from '../../src/policies/retry.ts'
import { toolCall } from '../support/caller.ts'
import { testPolicyContext, testScope } from '../support/policy-context.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { answer, failed, pass, scripted } from './retry/scripted.ts'
import { retryRefused } from '../../src/policies/retry/tries.ts'

/** A server with a script; `at` are the times at which it got a call. */
function setUp(
  outcomes: Outcome[],
  { config = {}, random }: { config?: object; random?: PolicyContext['random'] } = {},
) {
  const clock = new ManualClock()
  const context = random === undefined ? testPolicyContext(clock) : { ...testPolicyContext(clock), random }
  const { service } = scripted(...outcomes)
  const at: number[] = []
  const layer = retry.build(retry.schema.parse(config), context, testScope())
  const tried = layer((call) => {
    at.push(clock.now())
    return service(call)
  })
  const told: Outcome[] = []
  const send = (call: Call) => void tried(call).then((outcome) => told.push(outcome))
  return { clock, context, send, at, told }
}

test('waits are drawn from zero up to a bound that doubles with each retry, and is capped', async () => {
  for (const [draw, waits] of [
    [0, [0, 0, 0, 0, 0]],
    [0.5, [50, 100, 200, 400, 500]],
    [0.999, [99.9, 199.8, 399.6, 799.2, 999]],
  ] as const) {
    const config = { maxRetries: 5, base: 100, cap: '1s' }
    const { clock, send, at } = setUp([failed('bad_reply')], { config, random: () => draw })
    send(toolCall('tool'))
    await pass(clock, 10_000)
    const waited = at.slice(1).map((time, retry) => time - (at[retry] ?? 0))
    assert.deepEqual(
      waited.map((ms) => Math.round(ms * 10) / 10),
      waits,
    )
  }
})

test('calls and retries that fail at one time come back at different times', async () => {
  const config = { budget: { floor: 1_000, leastConcurrent: 1_000 } }
  const { clock, send, at } = setUp([failed('bad_reply')], { config })
  for (let i = 0; i < 20; i++) send(toolCall('tool'))
  await pass(clock, 10_000)
  assert.equal(at.length, 60)
  assert.equal(new Set(at.slice(20)).size, 40)
})

test('the wait that the server asks for is kept, and the jitter comes on top of it', async () => {
  for (const reason of ['upstream_rate_limited', 'upstream_status', 'upstream_unavailable'] as const) {
    const { clock, send, at, told } = setUp([failed(reason, { retryAfterMs: 3_000 }), answer])
    send(toolCall('tool', {}, { deadline: { at: 10_000, reserveMs: undefined } }))
    await pass(clock, 2_999)
    assert.equal(at.length, 1)
    await pass(clock, 101)
    assert.equal(at.length, 2)
    assert.deepEqual(told, [answer])
  }
})

test('a wait that ends after the deadline is not begun', async () => {
  const busy = failed('upstream_status', { retryAfterMs: 3_000 })
  const { clock, send, at, told } = setUp([busy, answer])
  const call = toolCall('tool', {}, { deadline: { at: 3_000, reserveMs: undefined } })
  send(call)
  await clock.advance(0)
  assert.deepEqual(told, [busy])
  assert.equal(retryRefused.of(call.record), 'deadline')
  assert.equal(at.length, 1)
  assert.equal(clock.pending, 0)
})

test('backoff counts towards the deadline too', async () => {
  const { clock, send, at } = setUp([failed('bad_reply')], { random: () => 0.5 })
  const call = toolCall('tool', {}, { deadline: { at: 150, reserveMs: undefined } })
  send(call)
  await pass(clock, 1_000)
  assert.deepEqual(at, [0, 50])
  assert.equal(retryRefused.of(call.record), 'deadline')
})

test('without a deadline nobody waits for longer than a minute', async () => {
  for (const [retryAfterMs, refused] of [
    [50_000, undefined],
    [60_000, 'deadline'],
  ] as const) {
    const { clock, send } = setUp([failed('upstream_rate_limited', { retryAfterMs }), answer])
    const call = toolCall('tool')
    send(call)
    await pass(clock, 60_000)
    assert.equal(retryRefused.of(call.record), refused)
  }
})

test('a caller that gives up during the wait gets the reason at once, and no timer stays behind', async () => {
  const { clock, context, send, at, told } = setUp([failed('bad_reply')], { random: () => 0.5 })
  const signal = new Cancellation()
  send({ ...toolCall('tool'), signal })
  await pass(clock, 10)
  assert.equal(clock.pending, 1)
  signal.abort(gatewayError('cancelled', 'not needed any more'))
  await clock.advance(0)
  assert.deepEqual(told, [
    { kind: 'failed', error: gatewayError('cancelled', 'not needed any more', { sent: true }) },
  ])
  assert.equal(clock.pending, 0)
  assert.equal(at.length, 1)
  for (const [, budget] of context.state.list<{ snapshot(): object }>('retry-budget')) {
    const { active, retrying } = budget.snapshot() as Record<string, unknown>
    assert.deepEqual({ active, retrying }, { active: 0, retrying: 0 })
  }
})

test('a caller that gave up before the failure gets the failure', async () => {
  const outcome = failed('attempt_timeout')
  const { clock, send, at, told } = setUp([outcome])
  const signal = new Cancellation()
  signal.abort(gatewayError('cancelled', 'too late'))
  send({ ...toolCall('tool'), signal })
  await pass(clock, 1_000)
  assert.deepEqual(told, [outcome])
  assert.equal(at.length, 1)
})
