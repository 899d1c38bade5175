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
import { answer, failed, pass, scripted, slow } from './retry/scripted.ts'
import { retryRefused } from '../../src/policies/retry/tries.ts'

/** A scripted server; `at` holds the times of its calls. */
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

test('waits are drawn from half of a bound up to it, which grows fourfold with each retry and is capped', async () => {
  for (const [draw, waits] of [
    [0, [50, 200, 500, 500, 500]],
    [0.5, [75, 300, 750, 750, 750]],
    [0.998, [99.9, 399.6, 999, 999, 999]],
  ] as const) {
    const config = { maxRetries: 5, base: 100, cap: '1s', waitForProof: false }
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
  const config = { maxRetries: 2, waitForProof: false, budget: { floor: 1_000, leastConcurrent: 1_000 } }
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
  const config = { waitForProof: false }
  const { clock, send, at } = setUp([failed('bad_reply')], { config, random: () => 0.5 })
  const call = toolCall('tool', {}, { deadline: { at: 150, reserveMs: undefined } })
  send(call)
  await pass(clock, 1_000)
  assert.deepEqual(at, [0, 75])
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

test('a retry does not wait for its turn when another call of the tool has succeeded', async () => {
  for (const [isProven, expected] of [
    [false, [0, 1_000, 5_000]],
    [true, [0, 1_000, 2_000]],
  ] as const) {
    const clock = new ManualClock()
    const context = { ...testPolicyContext(clock), random: () => 1 }
    const layer = retry.build(retry.schema.parse({ base: '1s' }), context, testScope())
    const at: number[] = []
    const service = layer(({ id, attempt }) => {
      if (id === 'succeeds') return Promise.resolve(answer)
      at.push(clock.now())
      return Promise.resolve(attempt < 3 ? failed('bad_reply') : answer)
    })
    void service(toolCall('tool', {}, { id: 'fails' }))
    await pass(clock, 1_500)
    if (isProven) await service(toolCall('tool', {}, { id: 'succeeds' }))
    await pass(clock, 10_000)
    assert.deepEqual(at, expected)
  }
})

test('a tool that fails for everybody gets one retry at a time, and a few a second', async () => {
  const clock = new ManualClock()
  const failing = slow(clock, 10, () => failed('bad_reply'))
  const layer = retry.build(retry.schema.parse({}), testPolicyContext(clock), testScope())
  let [underWay, most, count] = [0, 0, 0]
  const service = layer((call) => {
    if (call.attempt === 1) return failing(call)
    count++
    most = Math.max(most, ++underWay)
    return failing(call).finally(() => underWay--)
  })
  for (let i = 0; i < 50; i++) void service(toolCall('tool'))
  await pass(clock, 10_000)
  assert.equal(most, 1)
  assert.ok(count >= 15 && count <= 50, `${count} retries in 10 s`)
})

test('a call that was lost waits for no proof: its gate knows when the server is back', async () => {
  const { clock, send, told } = setUp([failed('upstream_unavailable', { sent: false }), answer])
  send(toolCall('tool'))
  await pass(clock, 100)
  assert.deepEqual(told, [answer])
})

test('a retry that found no proof in time says so, and tells the failure', async () => {
  const outcome = failed('bad_reply')
  const { clock, send, told, context } = setUp([outcome])
  const calls = Array.from({ length: 200 }, () => toolCall('tool'))
  for (const call of calls) send(call)
  await pass(clock, 60_000)
  assert.deepEqual(new Set(told), new Set([outcome]))
  assert.equal(told.length, 200)
  assert.ok(calls.filter(({ record }) => retryRefused.of(record) === 'no_proof').length > 20)
  for (const [, budget] of context.state.list<{ snapshot(): object }>('retry-budget')) {
    const { active, retrying } = budget.snapshot() as Record<string, unknown>
    assert.deepEqual({ active, retrying }, { active: 0, retrying: 0 })
  }
  assert.equal(clock.pending, 0)
})
