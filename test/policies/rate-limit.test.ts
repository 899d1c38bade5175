import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Outcome } from '../../src/mesh/call.ts'
import type { PolicyContext, Scope } from '../../src/mesh/policy.ts'
import { rateLimit } from '../../src/policies/rate-limit.ts'
import { toolCall } from '../support/caller.ts'
import { testPolicyContext, testScope } from '../support/policy-context.ts'
import { ManualClock } from '../support/manual-clock.ts'

const answer: Outcome = {
  kind: 'answered',
  result: { text: '{}', value: {}, status: 200 },
  verdict: 'unchecked',
}

/** A chain over shared state, like the chain of another tool or of the next generation. */
function chain(context: PolicyContext, settings: object, scope: Partial<Scope> = {}) {
  const config = rateLimit.schema.parse(settings)
  const service = rateLimit.build(
    config,
    context,
    testScope({ server: 'search', ...scope }),
  )(() => Promise.resolve(answer))
  return (tenant = 'test') => service(toolCall('tool', {}, { tenant }))
}

function setUp(settings: object) {
  const clock = new ManualClock()
  const context = testPolicyContext(clock)
  return { clock, context, send: chain(context, settings) }
}

const errorOf = (outcome: Outcome) => (outcome.kind === 'rejected' ? outcome.error : undefined)

test('a call over the rate is rejected, and told exactly when the next one may go', async () => {
  const { clock, send } = setUp({ rate: '60/m', burst: 2 })
  assert.equal(await send(), answer)
  assert.equal(await send(), answer)
  const outcome = await send()
  assert.ok(outcome.kind === 'rejected')
  assert.equal(outcome.by, 'rateLimit')
  assert.equal(outcome.error.reason, 'rate_limited')
  assert.equal(outcome.error.message, 'rate limit of 60/m for search exceeded')
  assert.equal(outcome.error.retryAfterMs, 1_000)
  await clock.advance(400.5)
  assert.equal(errorOf(await send())?.retryAfterMs, 600)
  await clock.advance(600)
  assert.equal(await send(), answer)
  assert.equal(errorOf(await send())?.retryAfterMs, 1_000)
})

test('tools of a server share its rate, unless each is to have its own', async () => {
  for (const [per, expected] of [
    ['server', 'rejected'],
    ['tool', 'answered'],
  ]) {
    const { context } = setUp({})
    const settings = { rate: 1, per }
    assert.equal((await chain(context, settings, { tool: 'one' })()).kind, 'answered')
    assert.equal((await chain(context, settings, { tool: 'two' })()).kind, expected)
    assert.equal((await chain(context, settings, { tool: 'one' })()).kind, 'rejected')
  }
})

test('each tenant can have a rate of its own, which names nobody', async () => {
  const { send } = setUp({ rate: 1, per: 'tenant' })
  assert.equal(await send('a'), answer)
  assert.equal(await send('b'), answer)
  assert.equal(errorOf(await send('a'))?.message, 'rate limit of 1/s for one tenant of search exceeded')
})

test('beyond ten thousand tenants, the tenants with the oldest last call are forgotten', async () => {
  const { send, context } = setUp({ rate: '1/d', per: 'tenant' })
  await send('first')
  await send('second')
  for (let i = 0; i < 9_998; i++) await send(`${i}`)
  assert.equal((await send('first')).kind, 'rejected')
  await send('one more')
  assert.equal((await send('first')).kind, 'rejected')
  assert.equal((await send('second')).kind, 'answered')
  const [entry] = context.state.list<{ snapshot(): unknown }>('rate-limit')
  assert.deepEqual(entry?.[1].snapshot(), [{ rate: '1/d', burst: 1, tenants: 10_000 }])
})

test('tenants that have had their burst for a minute are forgotten when another comes, and no others', async () => {
  const { send, context, clock } = setUp({ rate: 1, burst: 2, per: 'tenant' })
  const [entry] = context.state.list<{ snapshot(): unknown }>('rate-limit')
  const remembered = () => (entry?.[1].snapshot() as [{ tenants: number }])[0].tenants
  for (let i = 0; i < 100; i++) await send(`${i}`)
  await clock.advance(500)
  for (let i = 0; i < 2; i++) await send('busy')
  await clock.advance(60_499)
  await send('another')
  assert.equal(remembered(), 102)
  await clock.advance(1)
  await send('one more')
  assert.equal(remembered(), 3)
})

test('a tenant that calls now and then keeps its bucket, however many others come', async () => {
  const { send, context, clock } = setUp({ rate: 1, burst: 2, per: 'tenant' })
  const [entry] = context.state.list<{ snapshot(): unknown }>('rate-limit')
  const remembered = () => (entry?.[1].snapshot() as [{ tenants: number }])[0].tenants
  for (let i = 0; i < 10; i++) {
    await send('now and then')
    await send(`${i}`)
    await clock.advance(30_000)
  }
  // The last three of the others are not a minute old.
  assert.equal(remembered(), 4)
})

test('a reload with the same numbers does not fill the bucket, other numbers begin anew', async () => {
  const { context, send } = setUp({ rate: 1 })
  await send()
  assert.equal((await chain(context, { rate: '1/s' })()).kind, 'rejected')
  assert.equal((await chain(context, { rate: 2 })()).kind, 'answered')
})

test('arms of an experiment have rates of their own', async () => {
  const { context, send } = setUp({ rate: 1 })
  await send()
  assert.equal((await chain(context, { rate: 1 }, { set: 'cautious' })()).kind, 'answered')
})

test('rates are read in every unit, and invalid rates are refused', () => {
  const read = (rate: unknown) => rateLimit.schema.safeParse({ rate })
  assert.deepEqual(read('1.5/s').data?.rate, { calls: 1.5, perMs: 1_000 })
  assert.deepEqual(read('1000/h').data?.rate, { calls: 1_000, perMs: 3_600_000 })
  assert.deepEqual(read(0.5).data?.rate, { calls: 0.5, perMs: 1_000 })
  for (const rate of [0, -1, '0/s', '5', '5/w', '/s', '5 / s', '2000000/s', Infinity])
    assert.equal(read(rate).success, false, String(rate))
})

test('the default rate is a hundred calls a second, or the rate of the quota', async () => {
  const { send } = setUp({})
  for (let i = 0; i < 100; i++) assert.equal(await send(), answer)
  assert.equal(errorOf(await send())?.retryAfterMs, 10)
  const withQuota = setUp({ quota: { calls: 150, per: '1m', queue: 0 } })
  for (let i = 0; i < 150; i++) assert.equal(await withQuota.send(), answer)
  const burst = rateLimit.schema.safeParse({ burst: 3, quota: { calls: 1, per: '1s', queue: 0 } })
  assert.equal(burst.error?.issues[0]?.message, 'burst needs a rate: a quota has none')
  assert.equal(rateLimit.schema.safeParse({ quota: { calls: 1, per: '1s' } }).success, false)
})
