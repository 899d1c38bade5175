import assert from 'node:assert/strict'
import { test } from 'node:test'
import { RequestLimits } from '../../src/downstream/limits/limits.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { headersFor, modern, testModern } from './modern/test-modern.ts'
import { testEndpoint } from './test-endpoint.ts'

const slow = { rate: { calls: 2, perMs: 1_000 } }

function setUp(rates: ConstructorParameters<typeof RequestLimits>[1]) {
  const clock = new ManualClock()
  const refused: string[] = []
  const limits = new RequestLimits(clock, rates, (limit) => refused.push(limit))
  return { clock, limits, refused }
}

test('without a rate nothing is refused', () => {
  const { limits } = setUp({})
  for (let n = 0; n < 10_000; n++) assert.equal(limits.refusal('s', 't'), undefined)
})

test('a session above its rate is told when to send again, and other sessions are not affected', async () => {
  const { clock, limits, refused } = setUp({ perSession: slow })
  assert.deepEqual([limits.refusal('a', 't'), limits.refusal('a', 't')], [undefined, undefined])
  const error = limits.refusal('a', 't')
  assert.equal(error?.reason, 'rate_limited')
  assert.equal(error.message, 'rate limit of 2/s for the requests of one session exceeded')
  assert.equal(error.retryAfterMs, 500)
  assert.equal(limits.refusal('b', 't'), undefined)
  await clock.advance(500)
  assert.equal(limits.refusal('a', 't'), undefined)
  assert.deepEqual(refused, ['per_session'])
})

test('the sessions of one tenant share its rate', () => {
  const { limits, refused } = setUp({ perTenant: slow })
  assert.deepEqual([limits.refusal('a', 't'), limits.refusal('b', 't')], [undefined, undefined])
  assert.equal(limits.refusal('c', 't')?.message, 'rate limit of 2/s for the requests of one tenant exceeded')
  assert.equal(limits.refusal('c', 'u'), undefined)
  assert.deepEqual(refused, ['per_tenant'])
})

test('new rates are in force at once, and equal rates change nothing', () => {
  const { limits } = setUp({ perSession: { ...slow, burst: 1 } })
  assert.equal(limits.refusal('a', 't'), undefined)
  limits.tune({ perSession: { ...slow, burst: 1 } })
  assert.notEqual(limits.refusal('a', 't'), undefined)
  limits.tune({ perSession: { ...slow, burst: 2 } })
  assert.equal(limits.refusal('a', 't'), undefined)
  limits.tune({})
  for (let n = 0; n < 100; n++) assert.equal(limits.refusal('a', 't'), undefined)
})

test('in a legacy session no work is done for a request above the rate', async (t) => {
  let asked = 0
  const answer = () => (asked++, '{}')
  const { begin, post } = await testEndpoint(t, answer, {}, { perSession: slow })
  const headers = await begin()
  const call = (id: number) => post({ jsonrpc: '2.0', id, method: 'tools/list' }, headers)
  const replies = [await call(1), await call(2), await call(3)]
  assert.deepEqual(
    replies.map(({ status }) => status),
    [200, 200, 200],
  )
  const { error } = replies[2]?.json as { error: { code: number; data: Record<string, unknown> } }
  assert.equal(error.code, 1429)
  assert.deepEqual(
    [error.data.reason, error.data.retryAfterMs, error.data.sent, error.data.retryable],
    ['rate_limited', 500, false, true],
  )
  assert.equal(asked, 2)
})

test('every request of a batch counts', async (t) => {
  const { begin, post } = await testEndpoint(t, () => '{}', {}, { perSession: slow })
  const headers = await begin('2025-03-26')
  const batch = [1, 2, 3, 4].map((id) => ({ jsonrpc: '2.0', id, method: 'tools/list' }))
  const { json } = await post(batch, headers)
  assert.deepEqual(
    (json as { error?: unknown }[]).map((each) => each.error === undefined),
    [true, true, false, false],
  )
})

test('notifications that are passed on count as well, and a cancellation is never too fast', async (t) => {
  const { post, begin, notified } = await testEndpoint(t, undefined, {}, { perSession: slow })
  const session = await begin()
  const changed = { jsonrpc: '2.0', method: 'notifications/roots/list_changed' }
  const statuses = []
  for (let n = 0; n < 3; n++) statuses.push((await post(changed, session)).status)
  assert.deepEqual(statuses, [202, 202, 429])
  assert.equal((await post(changed, session)).headers['retry-after'], '1')
  assert.equal(notified.length, 2)
  const cancelled = { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 1 } }
  assert.equal((await post(cancelled, session)).status, 202)
})

test('an initialize that comes too fast begins no session', async (t) => {
  const { post, sessions } = await testEndpoint(t, () => '{}', {}, { perTenant: slow })
  const params = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'c', version: '1' } }
  const replies = []
  for (let id = 0; id < 4; id++)
    replies.push(await post({ jsonrpc: '2.0', id, method: 'initialize', params }, {}))
  assert.equal(sessions.size, 2)
  const { error } = replies[3]?.json as { error: { data: { reason: string } } }
  assert.equal(error.data.reason, 'rate_limited')
})

test('clients of the modern era count for their tenants, all new ones as one', async (t) => {
  const { send, requests, clock } = await testModern(t, () => '{}', { perTenant: slow })
  const call = async (id: number, tenant: string) => {
    const body = modern(id, 'tools/call', { name: 't' })
    const { messages } = await send(body, { ...headersFor(body), 'x-breakwater-tenant': tenant })
    return (messages[0]?.error as { data: { reason: string } } | undefined)?.data.reason
  }
  assert.deepEqual(
    [await call(1, 'a'), await call(2, 'b'), await call(3, 'c')],
    [undefined, undefined, 'rate_limited'],
  )
  assert.equal(requests.length, 2)
  await clock.advance(1_000)
  // Seen again after a second, each tenant has its own rate.
  for (const tenant of ['a', 'b', 'c']) assert.equal(await call(4, tenant), undefined)
  assert.deepEqual(
    requests.slice(2).map(({ tenancy }) => tenancy.countsAs),
    ['a', 'b', 'c'],
  )
})
