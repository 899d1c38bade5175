import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Call } from '../../../src/mesh/call.ts'
import { TestCaller, toolCall } from '../../support/caller.ts'
import { keyed, setUp } from './keyed.ts'

type Scope = 'caller' | 'tenant' | 'server'

/** A client, by the properties that separate its calls from calls of others. */
interface Client {
  readonly caller?: TestCaller
  readonly tenant?: string
  readonly headers?: Call['headers']
  readonly inbound?: Call['inbound']
}

const session = new TestCaller()

/** Sends the same call from two clients, with named or gateway-made keys. Returns how often the call runs. */
async function runsOf(
  settings: { key?: 'auto'; scope?: Scope },
  one: Client,
  other: Client,
): Promise<number> {
  const { clock, server, send } = setUp({ settings })
  for (const { headers, ...parts } of [one, other]) {
    const call = settings.key === 'auto' ? toolCall('tool', { a: 1 }, parts) : keyed('k', parts)
    send({ ...call, headers })
    await clock.advance(0)
  }
  return server.calls.length
}

/** Returns how often the call runs in each scope, with a named and with a gateway-made key. */
async function inEachScope(one: Client, other: Client): Promise<Record<Scope, number>> {
  const runs = { caller: 0, tenant: 0, server: 0 }
  for (const scope of ['caller', 'tenant', 'server'] as const) {
    runs[scope] = await runsOf({ scope }, one, other)
    assert.equal(await runsOf({ scope, key: 'auto' }, one, other), runs[scope], scope)
  }
  return runs
}

test('one session is the same caller, tenant and server', async () => {
  assert.deepEqual(await inEachScope({ caller: session }, { caller: session }), {
    caller: 1,
    tenant: 1,
    server: 1,
  })
})

test('another session of a tenant is another caller, and by default shares its keys', async () => {
  const [one, other] = [{ caller: session }, { caller: new TestCaller() }]
  assert.deepEqual(await inEachScope(one, other), { caller: 2, tenant: 1, server: 1 })
  assert.equal(await runsOf({}, one, other), 1)
})

test('other tenants share keys only where the whole server does', async () => {
  const [one, other] = [{ tenant: 'a' }, { tenant: 'b' }]
  assert.deepEqual(await inEachScope(one, other), { caller: 2, tenant: 2, server: 1 })
  assert.equal(await runsOf({}, one, other), 2)
})

test('a client that bears the name of a tenant is not that tenant', async () => {
  const [one, other] = [{ tenant: 'acme', inbound: { 'x-breakwater-tenant': 'acme' } }, { tenant: 'acme' }]
  assert.deepEqual(await inEachScope(one, one), { caller: 2, tenant: 1, server: 1 })
  assert.deepEqual(await inEachScope(one, other), { caller: 2, tenant: 2, server: 1 })
})

test('agents whose credentials the server gets are kept apart in every scope', async () => {
  const alice = { caller: session, headers: { authorization: 'alice' } }
  const bob = { caller: session, headers: { authorization: 'bob' } }
  assert.deepEqual(await inEachScope(alice, bob), { caller: 2, tenant: 2, server: 2 })
  assert.deepEqual(await inEachScope(alice, { caller: session }), { caller: 2, tenant: 2, server: 2 })
  assert.deepEqual(await inEachScope(alice, alice), { caller: 1, tenant: 1, server: 1 })
})

test('a second try has another span and other baggage, and is the same call', async () => {
  const traced = (n: number) => ({
    caller: session,
    headers: { baggage: `n=${n}`, traceparent: `00-${n}`, tracestate: `v=${n}`, 'x-user': 'a' },
  })
  assert.deepEqual(await inEachScope(traced(1), traced(2)), { caller: 1, tenant: 1, server: 1 })
})

test('clients without sessions are one caller as long as they say the same of themselves', async () => {
  const modern = (name: string, user?: string) =>
    Object.assign(new TestCaller({ era: 'modern', initializeParams: { clientInfo: { name } } }), {
      headers: user === undefined ? {} : { 'x-user': user },
    })
  const [one, alike] = [{ caller: modern('a') }, { caller: modern('a') }]
  assert.notEqual(one.caller.id, alike.caller.id)
  assert.deepEqual(await inEachScope(one, alike), { caller: 1, tenant: 1, server: 1 })
  assert.deepEqual(await inEachScope(one, { caller: modern('b') }), { caller: 2, tenant: 1, server: 1 })
  assert.deepEqual(await inEachScope(one, { caller: modern('a', 'bob') }), {
    caller: 2,
    tenant: 1,
    server: 1,
  })
})

test('a write has run in any arm of an experiment, for any arm of its retry', async () => {
  for (const settings of [{}, { key: 'auto' as const }]) {
    const first = setUp({ settings })
    const call = (parts: object = {}) =>
      settings.key === 'auto' ? toolCall('tool', { a: 1 }, parts) : keyed('k', parts)
    first.send(call())
    for (const set of ['canary/control', 'canary/treatment', 'default']) {
      const again = setUp({ settings, set, context: first.context })
      again.send(call())
      await again.clock.advance(0)
      assert.equal(again.server.calls.length, 0, set)
    }
    assert.equal(first.server.calls.length, 1)
  }
})

test('where agents choose their arm, a call runs once in each named arm; elsewhere a named arm makes no difference', async () => {
  for (const isArmAsked of [true, false]) {
    const { clock, server, send } = setUp()
    for (const arm of ['x/control', 'x/treatment', 'x/control']) {
      const _meta = { 'dev.breakwater/idempotency-key': 'k', 'dev.breakwater/arm': arm }
      const call = toolCall('tool', {}, { params: { name: 'tool', arguments: {}, _meta } })
      Object.assign(call.record, { arm, isArmAsked })
      send(call)
      await clock.advance(0)
    }
    assert.equal(server.calls.length, isArmAsked ? 2 : 1)
  }
})
