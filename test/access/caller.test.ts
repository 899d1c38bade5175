import assert from 'node:assert/strict'
import { test } from 'node:test'
import { SessionTenants, Tenancies } from '../../src/access/caller.ts'

const named = (tenant: string) => ({ 'x-breakwater-tenant': tenant })
const client = { name: 'client', version: '1' }

test('the tenant is who the header names, or else the client, and never longer than 64 characters', () => {
  const tenancies = new Tenancies()
  const tenant = (headers: object, clientInfo?: unknown) => tenancies.of({ ...headers }, clientInfo, 0).tenant
  assert.equal(tenant(named('acme'), client), 'acme')
  assert.equal(tenant({}, client), 'client')
  assert.equal(tenant(named(''), client), 'client')
  const long = 'x'.repeat(100)
  assert.match(tenant(named(long)), /^x{41}…[\w-]{22}$/)
  assert.notEqual(tenant(named(`${long}1`)), tenant(named(`${long}2`)))
  assert.equal(tenant({}), '')
  assert.equal(tenant({}, 'client'), '')
})

test('a client with the same name as a tenant has no part in the tenant’s share', () => {
  const tenancies = new Tenancies()
  const own = new SessionTenants('s')
  const of = (headers: object, now: number) => tenancies.of({ ...headers }, { name: 'acme' }, now, own)
  for (const now of [0, 1_000, 1_001]) {
    const [tenant, client] = [of(named('acme'), now), of({}, now)]
    assert.equal(tenant.tenant, client.tenant)
    if (now > 0) assert.notEqual(tenant.countsAs, client.countsAs)
  }
})

test('calls with ever new names count as one client, and never as a known client', () => {
  const tenancies = new Tenancies()
  const seen = new Set<string>()
  for (let n = 0; n < 5_000; n++) seen.add(tenancies.of(named(`fresh ${n}`), client, n).countsAs)
  assert.equal(seen.size, 1)
  for (const countsAs of seen) assert.ok(countsAs.length > 64, 'the shared name is longer than any tenant')
})

test('a new name counts separately when seen again after a second, and keeps its tenant meanwhile', () => {
  const tenancies = new Tenancies()
  const at = (now: number) => tenancies.of(named('acme'), client, now)
  const first = at(0)
  assert.deepEqual(at(999), first)
  assert.deepEqual(at(1_000), { tenant: 'acme', countsAs: 'acme' })
  assert.deepEqual(at(1_001), { tenant: 'acme', countsAs: 'acme' })
  assert.equal(first.tenant, 'acme')
})

test('no number of new names pushes out a settled tenant', () => {
  const tenancies = new Tenancies()
  tenancies.of(named('acme'), client, 0)
  tenancies.of(named('acme'), client, 1_000)
  for (let n = 0; n < 30_000; n++) tenancies.of(named(`fresh ${n}`), client, 2_000)
  assert.equal(tenancies.of(named('acme'), client, 3_000).countsAs, 'acme')
})

test('among settled tenants, the least recently used tenant is forgotten', () => {
  const tenancies = new Tenancies()
  for (const now of [0, 1_000]) for (let n = 0; n < 10_000; n++) tenancies.of(named(`t${n}`), client, now)
  assert.equal(tenancies.of(named('t0'), client, 3_000).countsAs, 't0')
  for (const now of [4_000, 5_000]) tenancies.of(named('one more'), client, now)
  assert.equal(tenancies.of(named('t0'), client, 6_000).countsAs, 't0')
  assert.notEqual(tenancies.of(named('t1'), client, 6_000).countsAs, 't1')
})

test('beyond eight at a time, the tenants of one session count as one', () => {
  const tenancies = new Tenancies()
  const [own, other] = [new SessionTenants('s1'), new SessionTenants('s2')]
  const countsAs = (tenant: string, now: number, session = own) =>
    tenancies.of(named(tenant), client, now, session).countsAs
  for (const now of [0, 1_000]) for (let n = 0; n < 8; n++) countsAs(`t${n}`, now)
  assert.equal(countsAs('t7', 2_000), 't7')
  const ninth = countsAs('t8', 2_000)
  assert.equal(countsAs('t9', 2_000), ninth)
  assert.ok(ninth.length > 64)
  // Counts of another session stay untouched. This session's idle tenants make room.
  assert.equal(countsAs('t0', 2_000, other), 't0')
  for (const now of [62_000, 63_000]) countsAs('t9', now)
  assert.equal(countsAs('t9', 64_000), 't9')
})

test('a caller without a name counts as nobody', () => {
  const tenancies = new Tenancies()
  assert.deepEqual(tenancies.of({}, undefined, 0), { tenant: '', countsAs: '' })
})
