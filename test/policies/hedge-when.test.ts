import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { PolicyContext, Scope } from '../../src/mesh/policy.ts'
import { hedge } from '../../src/policies/hedge.ts'
import { estimateOf } from '../../src/policies/state/estimate.ts'
import { toolCall } from '../support/caller.ts'
import { testScope } from '../support/policy-context.ts'
import { hedged } from './retry/hedged.ts'
import { hedges, retryRefused } from '../../src/policies/retry/tries.ts'

test('only what is known to read alone is sent twice', async () => {
  for (const effect of ['write', 'unknown', 'idempotent'] as const) {
    const { clock, send, tries } = hedged([1_000], { scope: testScope({ effect }) })
    send(toolCall('tool'))
    await clock.advance(1_000)
    assert.equal(tries.length, 1)
  }
})

test('a call whose deadline comes before the second try is sent once', async () => {
  const { clock, send, tries } = hedged([1_000])
  send(toolCall('tool', {}, { deadline: { at: 100, reserveMs: undefined } }))
  await clock.advance(1_000)
  assert.equal(tries.length, 1)
})

test("somebody else's retry is not sent twice", async () => {
  const { clock, send, tries } = hedged([1_000])
  const call = toolCall('tool', {}, { inbound: { 'x-breakwater-attempt': '2' } })
  send(call)
  await clock.advance(1_000)
  assert.equal(tries.length, 1)
  assert.equal(retryRefused.of(call.record), 'inbound_attempt')
})

test('second tries are paid for from the budget of retries, and without it there are none', async () => {
  const config = { budget: { ratio: 0, floor: 0.2 } }
  const { clock, send, tries } = hedged([9_000, 9_000, 9_000, 9_000, 9_000], { config })
  const calls = [1, 2, 3].map(() => toolCall('tool'))
  for (const call of calls) send(call)
  await clock.advance(1_000)
  assert.equal(tries.length, 5)
  assert.deepEqual(
    calls.map(({ record }) => [hedges.of(record), retryRefused.of(record)]),
    [
      [1, undefined],
      [1, undefined],
      [0, 'server_budget'],
    ],
  )
})

test('with more than one second try allowed, each follows after the same wait', async () => {
  const { clock, send, at } = hedged([9_000, 9_000, 9_000, 9_000], { config: { maxHedges: 2 } })
  send(toolCall('tool'))
  await clock.advance(1_000)
  assert.deepEqual(at, [0, 100, 200])
})

test('the quantile is the tool’s own: nothing is sent twice while unknown', async () => {
  const unknown = hedged([10_000], { config: { after: 'p95' } })
  unknown.send(toolCall('tool'))
  await unknown.clock.advance(10_000)
  assert.equal(unknown.tries.length, 1)
  const known = hedged([10_000], {
    config: { after: 'p95' },
    learn: (context, scope) => {
      for (let i = 0; i < 50; i++) estimateOf(context, scope, 0).record(200, 0)
    },
  })
  known.send(toolCall('tool'))
  await known.clock.advance(1_000)
  const hedgedAt = known.at[1] as number
  assert.ok(hedgedAt >= 170 && hedgedAt <= 231, `${hedgedAt}`)
})

test('the fastest of several replicas counts, unless the call has to go to a certain replica', async () => {
  const learn = (context: PolicyContext, scope: Scope) => {
    for (let i = 0; i < 50; i++) estimateOf(context, scope, 0).record(1_000, 0)
    for (let i = 0; i < 50; i++) estimateOf(context, scope, 1).record(100, 0)
  }
  for (const [home, replica, least, most] of [
    [undefined, undefined, 85, 116],
    [0, undefined, 850, 1_151],
    [1, 0, 850, 1_151],
  ] as const) {
    const scope = testScope({ replicas: 2, home: () => home })
    const { clock, send, at } = hedged([10_000], { config: { after: 'p95' }, scope, learn })
    send({ ...toolCall('tool'), replica })
    await clock.advance(2_000)
    const hedgedAt = at[1] as number
    assert.ok(hedgedAt >= least && hedgedAt <= most, `${hedgedAt}`)
  }
})

test('hedging needs an explicit wait; all other settings have defaults', () => {
  assert.equal(hedge.optIn, true)
  assert.equal(hedge.schema.safeParse({}).success, false)
  for (const after of ['p50', 0, 'soon']) assert.equal(hedge.schema.safeParse({ after }).success, false)
  assert.deepEqual(hedge.schema.parse({ after: 'p99' }), {
    after: 'p99',
    maxHedges: 1,
    budget: {
      ratio: 0.5,
      costlyRatio: 0.2,
      floor: 10,
      window: 10_000,
      concurrency: 0.5,
      leastConcurrent: 16,
    },
  })
  assert.equal(hedge.schema.parse({ after: '2s' }).after, 2_000)
})
