import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Call } from '../../src/mesh/call.ts'
import type { PolicyContext } from '../../src/mesh/policy.ts'
import { retry } from '../../src/policies/retry.ts'
import { type BudgetSnapshot, retries, retryRefused } from '../../src/policies/retry/tries.ts'
import { toolCall } from '../support/caller.ts'
import { testPolicyContext, testScope } from '../support/policy-context.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { answer, failed, pass, scripted, slow } from './retry/scripted.ts'

function serviceOf(
  context: PolicyContext,
  next: Parameters<ReturnType<typeof retry.build>>[0],
  config: object = {},
  server = 'test',
) {
  return retry.build(retry.schema.parse(config), context, testScope({ server }))(next)
}

function budgets(context: PolicyContext): Record<string, BudgetSnapshot> {
  const listed = context.state.list<{ snapshot(): BudgetSnapshot }>('retry-budget')
  return Object.fromEntries(listed.map(([{ server }, budget]) => [server, budget.snapshot()]))
}

const down = failed('upstream_status')

for (const waitForProof of [true, false])
  for (const perSecond of [25, 40, 150])
    test(`a server that fails for 30 s gets ${waitForProof ? 'a few retries a second' : 'at most 1.6 times the load'} at ${perSecond} calls/s ${waitForProof ? 'with' : 'without'} a proof`, async () => {
      const clock = new ManualClock()
      let isDown = false
      let tries = 0
      const upstream = slow(clock, 5, () => (isDown ? down : answer))
      const service = serviceOf(
        testPolicyContext(clock),
        (call) => {
          if (isDown) tries++
          return upstream(call)
        },
        { maxRetries: 10, waitForProof, budget: { leastConcurrent: 10_000 } },
      )
      let calls = 0
      const everyMs = 1_000 / perSecond
      const offer = () => {
        if (isDown) calls++
        void service(toolCall('tool', {}, { startedAt: clock.now() }))
        clock.after(everyMs, offer)
      }
      offer()
      await pass(clock, 10_480)
      isDown = true
      await pass(clock, 30_000)
      assert.ok(calls >= perSecond * 29)
      const [least, most] = waitForProof ? [calls + 30, calls + 150] : [calls * 1.3, calls * 1.6]
      assert.ok(tries >= least && tries <= most, `${tries} tries of ${calls} calls`)
    })

test('50 callers whose server turns slow and fails send at most two tries a call, whatever fast calls have earned', async () => {
  const clock = new ManualClock()
  let isDown = false
  let tries = 0
  const fast = slow(clock, 100)
  const failing = slow(clock, 1_000, () => down)
  const next = (call: Call) => {
    if (isDown) tries++
    return isDown ? failing(call) : fast(call)
  }
  const service = serviceOf(testPolicyContext(clock), next, { maxRetries: 10, waitForProof: false })
  let calls = 0
  const caller = (): void => {
    if (isDown) calls++
    void service(toolCall('tool', {}, { startedAt: clock.now() })).then(caller)
  }
  for (let i = 0; i < 50; i++) caller()
  await pass(clock, 10_000)
  isDown = true
  await pass(clock, 30_000)
  assert.ok(calls > 500, `${calls} calls`)
  assert.ok(tries <= calls * 2, `${tries} tries of ${calls} calls`)
})

test('an agent that is alone gets both retries of every call, minute after minute', async () => {
  const clock = new ManualClock()
  const config = { maxRetries: 2, waitForProof: false }
  const service = serviceOf(testPolicyContext(clock), scripted(down).service, config)
  for (let second = 0; second < 120; second++) {
    const call = toolCall('tool')
    void service(call)
    await pass(clock, 1_000)
    assert.equal(retries.of(call.record), 2)
  }
})

test('when the budget of the server is used up, calls fail at their first try and say so', async () => {
  const clock = new ManualClock()
  const context = testPolicyContext(clock)
  const service = serviceOf(context, scripted(down).service, {
    budget: { floor: 0.3, ratio: 0, leastConcurrent: 100 },
  })
  const calls = [1, 2, 3].map(() => toolCall('tool'))
  for (const call of calls) void service(call)
  await pass(clock, 4_000)
  assert.equal(
    calls.reduce((sum, { record }) => sum + retries.of(record), 0),
    3,
  )
  assert.deepEqual(
    calls.map(({ record }) => retryRefused.of(record)),
    ['server_budget', 'server_budget', 'server_budget'],
  )
  assert.equal(budgets(context).test?.balance, 0)
  await pass(clock, 12_000)
  assert.equal(budgets(context).test?.balance, 3)
})

test('servers have budgets of their own, and share that of the gateway', async () => {
  const clock = new ManualClock()
  const context = testPolicyContext(clock)
  const budget = { floor: 0.3, ratio: 0, leastConcurrent: 100 }
  const one = serviceOf(context, scripted(down).service, { maxRetries: 1, budget }, 'one')
  const two = serviceOf(context, scripted(down).service, { maxRetries: 1, budget }, 'two')
  const calls = [one, one, two, two].map((service) => {
    const call = toolCall('tool')
    void service(call)
    return call
  })
  await pass(clock, 1_000)
  assert.deepEqual(calls.map(({ record }) => String(retryRefused.of(record))).toSorted(), [
    'gateway_budget',
    'max_retries',
    'max_retries',
    'max_retries',
  ])
  const { one: first, two: second, '': gateway } = budgets(context)
  // Random waits decide which tool's retry comes last.
  assert.deepEqual([first!.balance + second!.balance, gateway?.balance], [3, 0])
  assert.equal(gateway?.deposits, 4)
})

test('up to sixteen calls may be retried at a time, and half of many calls under way', async () => {
  for (const [callers, granted] of [
    [20, 16],
    [50, 25],
  ] as const) {
    const clock = new ManualClock()
    const context = testPolicyContext(clock)
    const service = serviceOf(
      context,
      slow(clock, 1_000, () => down),
      { maxRetries: 1, waitForProof: false },
    )
    const calls = Array.from({ length: callers }, () => toolCall('tool'))
    for (const call of calls) void service(call)
    await pass(clock, 10_000)
    const refused = calls.filter(({ record }) => retryRefused.of(record) === 'concurrency').length
    assert.equal(callers - refused, granted)
    const { active, retrying } = budgets(context).test as BudgetSnapshot
    assert.deepEqual({ active, retrying }, { active: 0, retrying: 0 })
  }
})

test('tools with terms of their own draw on the same budget of their server', async () => {
  const clock = new ManualClock()
  const context = testPolicyContext(clock)
  const strict = serviceOf(context, scripted(down).service, { budget: { floor: 0.1, ratio: 0 } })
  const lax = serviceOf(context, scripted(down).service)
  const first = toolCall('lax')
  void lax(first)
  await pass(clock, 1_000)
  assert.equal(retries.of(first.record), 2)
  const second = toolCall('strict')
  void strict(second)
  await pass(clock, 1_000)
  assert.equal(retryRefused.of(second.record), 'server_budget')
})

test('a defect of ours under a call leaves no call under way behind', async () => {
  const clock = new ManualClock()
  const context = testPolicyContext(clock)
  const service = serviceOf(context, () => Promise.reject(new Error('a defect')))
  await assert.rejects(service(toolCall('tool')), /a defect/)
  assert.equal(budgets(context).test?.active, 0)
})
