import assert from 'node:assert/strict'
import { test } from 'node:test'
import { clientOf, Quota, quotaLimits, Quotas } from '../../../src/downstream/limits/quotas.ts'
import { defaultLimits } from '../../support/default-limits.ts'

test('clients are told apart by address, those of IPv6 by its first 64 bits', () => {
  for (const [address, client] of [
    ['127.0.0.1', '127.0.0.1'],
    ['::ffff:10.0.0.1', '10.0.0.1'],
    ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'],
    ['2001:db8:1:2::7', '2001:db8:1:2::/64'],
    ['2001:db8::1', '2001:db8:0:0::/64'],
    ['::1', '0:0:0:0::/64'],
    ['fe80::1%eth0', 'fe80:0:0:0::/64'],
    [undefined, ''],
  ] as const)
    assert.equal(clientOf(address), client, address)
})

test('one client gets its share, all together get what there is, and each error names its limit', () => {
  const refused: string[] = []
  const quota = new Quota('listens', 'subscriptions', { max: 3, perClient: 2 }, (limit) =>
    refused.push(limit),
  )
  quota.take('a')
  quota.take('a')
  assert.match(
    quota.refusal('a')?.message ?? '',
    /subscriptions of this client \(limit 2, gateway\.limits\.perClient\)/,
  )
  assert.equal(quota.refusal('b'), undefined)
  quota.take('b')
  assert.match(
    quota.refusal('b')?.message ?? '',
    /too many subscriptions \(limit 3, gateway\.sessions\.max\)/,
  )
  assert.deepEqual(refused, ['listens_per_client', 'listens'])
  assert.ok(refused.every((limit) => quotaLimits.includes(limit as (typeof quotaLimits)[number])))
  quota.release('a')
  assert.equal(quota.refusal('b'), undefined)
  assert.deepEqual([quota.of('a'), quota.of('b'), quota.total], [1, 1, 2])
})

test('a request of several units is refused when fewer are left', () => {
  const quota = new Quota('listens', 'subscriptions', { max: 10, perClient: 6 }, () => undefined)
  quota.take('a', 4)
  assert.equal(quota.exceeds('a', 2), undefined)
  assert.equal(quota.exceeds('a', 3), 'perClient')
  quota.take('b', 5)
  assert.equal(quota.exceeds('a', 2), 'max')
  quota.release('b', 5)
  quota.release('a', 4)
  assert.deepEqual([quota.of('a'), quota.of('b'), quota.total], [0, 0, 0])
})

test('a client allowed to have everything meets the total limit', () => {
  const quota = new Quota('calls', 'calls', { max: 1, perClient: 1 }, () => undefined)
  quota.take('a')
  assert.match(quota.refusal('a')?.message ?? '', /too many calls \(limit 1, gateway\.maxInFlight\)/)
})

test('a tenant has half of the calls of its client that may wait for answers, a session a quarter, and one with few the last', () => {
  const refused: string[] = []
  const shares = { ...defaultLimits.shares, pendingInputs: { max: 1_000, perClient: 8 } }
  const { pendingInputs } = new Quotas(shares, (limit) => refused.push(limit))
  const asked = (client: string, tenant: string, session?: string) => ({ client, tenant, session })
  const takeAll = (call: ReturnType<typeof asked>) => {
    let taken = 0
    for (; pendingInputs.refusal(call) === undefined; taken++) pendingInputs.take(call)
    return taken
  }
  assert.equal(takeAll(asked('one', 'ours', 'a')), 2)
  assert.equal(takeAll(asked('one', 'ours', 'b')), 2)
  assert.equal(takeAll(asked('one', 'ours', 'c')), 0)
  assert.equal(takeAll(asked('two', 'ours')), 4)
  // The last slot is reserved for a tenant without any.
  assert.equal(takeAll(asked('one', 'others')), 3)
  assert.equal(takeAll(asked('one', 'third')), 1)
  assert.equal(takeAll(asked('one', 'fourth')), 0)
  const whose = refused.map((limit) => limit.replace('pendingInputs_per_', ''))
  assert.deepEqual(whose, ['session', 'session', 'tenant', 'tenant', 'tenant', 'client', 'client'])
  // Tenants without a settled name share half; each of their sessions without a slot gets one.
  assert.equal(takeAll(asked('three', '', 'd')), 2)
  assert.equal(takeAll(asked('three', '', 'e')), 2)
  assert.equal(takeAll(asked('three', '', 'f')), 1)
  refused.length = 0
  pendingInputs.release(asked('one', 'ours', 'a'))
  assert.equal(takeAll(asked('one', 'ours', 'c')), 0)
  assert.equal(takeAll(asked('one', 'fourth')), 1)
  pendingInputs.release(asked('one', 'ours', 'b'))
  pendingInputs.release(asked('one', 'others'))
  assert.equal(takeAll(asked('one', 'ours', 'c')), 1)
})

test('a client gives a tenant as many of its last eighth of slots as are free, and no count outlives its call', () => {
  const shares = { ...defaultLimits.shares, calls: { max: 64, perClient: 32 } }
  const { calls, tenantCalls } = new Quotas(shares, () => undefined)
  const begin = (tenant: string) => {
    const counted = tenantCalls.begin({ client: 'a', tenant })
    const isRefused = counted !== undefined && 'reason' in counted
    if (!isRefused) calls.take('a')
    return isRefused ? 'refused' : counted
  }
  const counts = Array.from({ length: 28 }, () => begin('many'))
  assert.equal(counts.filter((counted) => counted === undefined).length, 16)
  assert.equal(begin('many'), 'refused')
  const few = [begin('few'), begin('few'), begin('few')]
  assert.ok(few.slice(0, 2).every((counted) => typeof counted === 'function'))
  assert.equal(few[2], 'refused')
  for (const counted of counts) {
    if (typeof counted === 'function') counted()
  }
  assert.equal(typeof begin('many'), 'function')
})
