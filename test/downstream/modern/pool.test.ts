import assert from 'node:assert/strict'
import { test } from 'node:test'
import { CallerPool, type PooledCaller } from '../../../src/downstream/modern/pool.ts'
import { EvictingQuota, Quota, type Share } from '../../../src/downstream/limits/quotas.ts'
import { isGatewayError } from '../../../src/mesh/errors.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { message } from './test-modern.ts'

const MAX = 256
const IDLE_MS = 10 * 60_000
const MIB = 1024 ** 2

const greetingsOf = (share: Share) => new EvictingQuota('initializeParams', 'bytes', share, () => undefined)

function pool({ max = MAX, perClient = MAX, greetings = greetingsOf({ max: MIB, perClient: MIB }) } = {}) {
  const clock = new ManualClock()
  const dropped: PooledCaller[] = []
  const refused: string[] = []
  const quota = new Quota('callers', 'kinds of clients at once', { max, perClient }, (limit) =>
    refused.push(limit),
  )
  const callers = new CallerPool(
    clock,
    quota,
    greetings,
    (caller) => dropped.push(caller),
    () => undefined,
  )
  const like = (
    clientInfo: unknown,
    capabilities: unknown,
    headers: Record<string, string>,
    principal = '',
  ) => callers.of('client', clientInfo, capabilities, headers, principal) as PooledCaller
  /** `of` expects a caller; `from` may return an error. */
  const of = (name: string) => like({ name }, {}, {})
  const from = (client: string, name: string) => callers.of(client, { name }, {}, {})
  return { clock, dropped, refused, callers, like, of, from }
}

test('clients that are alike share a caller', () => {
  const { callers, like: of } = pool()
  const first = of({ name: 'a' }, { roots: {} }, { authorization: 'x' })
  assert.equal(of({ name: 'a' }, { roots: {} }, { authorization: 'x' }), first)
  assert.equal(callers.size, 1)
})

test('other capabilities, another name or other credentials make another caller', () => {
  const { callers, like: of } = pool()
  of({ name: 'a' }, {}, {})
  of({ name: 'b' }, {}, {})
  of({ name: 'a' }, { roots: {} }, {})
  of({ name: 'a' }, {}, { authorization: 'x' })
  of({ name: 'a' }, {}, { authorization: 'y' })
  of({ name: 'a' }, {}, {}, 'principal')
  assert.equal(callers.size, 6)
})

test('clients that say very much of themselves are told apart as well', () => {
  const { like: of } = pool()
  const long = 'x'.repeat(10_000)
  const first = of({ name: `${long}1` }, {}, {})
  assert.notEqual(of({ name: `${long}2` }, {}, {}), first)
  assert.equal(of({ name: `${long}1` }, {}, {}), first)
})

test('a caller says hello as its clients would, and by our name for clients that have none', () => {
  const { like: of } = pool()
  assert.deepEqual(of({ name: 'a' }, { roots: {} }, {}).initializeParams, {
    protocolVersion: '2025-11-25',
    capabilities: { roots: {} },
    clientInfo: { name: 'a' },
  })
  const { clientInfo } = of(undefined, {}, {}).initializeParams as { clientInfo: { name: string } }
  assert.equal(clientInfo.name, 'breakwater')
})

test('no id is given out twice', () => {
  const caller = pool().of('a')
  assert.notEqual(caller.mintId(), caller.mintId())
})

test('the caller unused for longest makes room', async () => {
  const { clock, dropped, of } = pool()
  const first = of('0')
  const second = of('1')
  for (let i = 2; i < MAX; i++) of(String(i))
  await clock.advance(2_000)
  of('0')
  of('new')
  assert.deepEqual(dropped, [second])
  assert.equal(of('0'), first)
})

test('an idle caller is dropped when another one comes', async () => {
  const { clock, dropped, callers, of } = pool()
  const idle = of('a')
  await clock.advance(IDLE_MS + 1)
  of('b')
  assert.deepEqual(dropped, [idle])
  assert.equal(callers.size, 1)
})

test('a caller with a call under way, or with somebody who listens, is neither idle nor in the way', async () => {
  const { clock, dropped, of } = pool()
  const calling = of('calling')
  calling.calls = 1
  const listening = of('listening')
  listening.listeners.add(() => undefined)
  const idle = of('idle')
  await clock.advance(IDLE_MS + 1)
  // The last two slots are reserved for tenants with fewer callers in use.
  for (let i = 0; i < MAX - 4; i++) of(String(i))
  assert.deepEqual(dropped, [idle])
  await clock.advance(2_000)
  of('one more')
  assert.equal(dropped.length, 2)
  assert.ok(!dropped.includes(calling) && !dropped.includes(listening))
})

test('a caller in use never makes room: the newcomer is refused, until one is free', () => {
  const { dropped, callers, refused, of, from } = pool({ max: 3, perClient: 3 })
  const busy = ['0', '1', '2'].map((name) => of(name))
  for (const caller of busy) caller.calls = 1
  const error = from('client', 'one more')
  assert.ok(isGatewayError(error))
  assert.match(error.message, /too many kinds of clients at once \(limit 3\)/)
  assert.deepEqual([dropped, callers.size, refused.length], [[], 3, 1])
  busy[1]!.calls = 0
  assert.ok(!isGatewayError(from('client', 'one more')))
  assert.deepEqual(dropped, [busy[1]])
})

test('a greedy client takes its own share, and neither the callers nor the room of others', () => {
  const { dropped, refused, from } = pool({ max: 4, perClient: 2 })
  const bystander = from('bystander', 'b')
  const own = ['0', '1'].map((name) => from('greedy', name) as PooledCaller)
  from('greedy', '2')
  assert.deepEqual(dropped, [own[0]])
  own[1]!.listeners.add(() => undefined)
  ;(from('greedy', '2') as PooledCaller).calls = 1
  const error = from('greedy', '3')
  assert.ok(isGatewayError(error))
  assert.match(error.message, /of this client \(limit 2, gateway\.limits\.perClient\)/)
  assert.deepEqual(refused, ['callers_per_client'])
  assert.equal(from('bystander', 'b'), bystander)
  assert.ok(!isGatewayError(from('another', 'a')))
  assert.deepEqual(dropped, [own[0]])
})

test('an owner of an open task keeps its place among its own kinds until the task has ended', async () => {
  const { clock, dropped, of } = pool({ max: 3, perClient: 3 })
  const owner = of('owner')
  const begun = { result: { resultType: 'task', taskId: 't', status: 'working', ttlMs: null } }
  owner.answered('box', 'tools/call', begun)
  for (let n = 0; n < 600; n++) of(String(n))
  await clock.advance(IDLE_MS + 1)
  of('later')
  assert.ok(!dropped.includes(owner))
  assert.equal(of('owner'), owner)
  owner.answered('box', 'tasks/get', { result: { taskId: 't', status: 'completed' } })
  await clock.advance(2_000)
  for (let n = 0; n < 3; n++) of(String(n))
  assert.ok(dropped.includes(owner))
})

for (const [held, hold] of [
  ['that listen', (caller: PooledCaller) => caller.listeners.add(() => undefined)],
  [
    'with open tasks',
    (caller: PooledCaller) =>
      caller.answered('box', 'tools/call', { result: { task: { taskId: caller.id, status: 'working' } } }),
  ],
] as const)
  test(`many kinds ${held} lock out neither another token at the same address nor another address`, () => {
    const { dropped, callers } = pool({ max: 6, perClient: 4 })
    const from = (client: string, token: string, name: string) => callers.of(client, { name }, {}, {}, token)
    const greedy = ['0', '1', '2', '3'].map((name) => from('proxy', 'greedy', name) as PooledCaller)
    for (const caller of greedy) hold(caller)
    assert.ok(isGatewayError(from('proxy', 'greedy', '4')))
    const other = from('proxy', 'other', '0') as PooledCaller
    hold(other)
    assert.deepEqual(dropped, [greedy[0]])
    hold(from('proxy', 'other', '1') as PooledCaller)
    // Both tenants now have the same number, so neither ends the other's callers.
    assert.ok(isGatewayError(from('proxy', 'other', '2')))
    for (const name of ['0', '1']) hold(from('elsewhere', '', name) as PooledCaller)
    hold(from('third', '', '2') as PooledCaller)
    assert.equal(dropped.length, 3)
    assert.ok(dropped.every(({ client }) => client === 'proxy'))
  })

test('kinds with calls under way never make room, nor do idle ones for who has more of them', () => {
  const { dropped, callers } = pool({ max: 4, perClient: 4 })
  const from = (token: string, name: string) => callers.of('proxy', { name }, {}, {}, token)
  const calling = ['0', '1', '2'].map((name) => from('greedy', name) as PooledCaller)
  for (const caller of calling) caller.calls = 1
  assert.ok(!isGatewayError(from('other', '0')))
  assert.ok(isGatewayError(from('greedy', '3')))
  assert.ok(!isGatewayError(from('other', '1')))
  assert.deepEqual(
    dropped.map(({ principal }) => principal),
    ['other'],
  )
})

test('idle kinds of many others keep no tenant from as many kinds as it would have alone', () => {
  const { callers, dropped } = pool({ max: 64, perClient: 32 })
  const from = (client: string, tenant: string, name: string) =>
    callers.of(client, { name }, {}, {}, tenant, tenant)
  const listen = (client: string, tenant: string, name: string) => {
    const caller = from(client, tenant, name)
    if (!isGatewayError(caller)) caller.listeners.add(() => undefined)
    return caller
  }
  const others = Array.from({ length: 32 }, (_, n) => from('proxy', `other ${n}`, 'once') as PooledCaller)
  const busy = others.at(-1)!
  busy.calls = 1
  for (let n = 0; n < 28; n++) assert.ok(!isGatewayError(listen('proxy', 'team', `${n}`)), `kind ${n}`)
  assert.deepEqual(dropped, others.slice(0, 28))
  const refused = listen('proxy', 'team', 'one more')
  assert.ok(isGatewayError(refused))
  assert.match(refused.message, /^nearly too many kinds/)
  assert.ok(!isGatewayError(listen('proxy', 'other 0', 'once')))
  // Idle callers of another address make room too.
  for (let n = 0; n < 32; n++) from('second', `other ${n}`, 'once')
  for (let n = 0; n < 28; n++) assert.ok(!isGatewayError(listen('third', 'team', `${n}`)), `kind ${n}`)
  assert.ok(!dropped.includes(busy) && dropped.every(({ listening }) => !listening))
})

test('finished calls of ever new kinds of one tenant end its own idle kinds', () => {
  const { callers, dropped } = pool({ max: 8, perClient: 8 })
  for (let n = 0; n < 8; n++) callers.of('proxy', { name: 'once' }, {}, {}, `other ${n}`)
  for (let n = 0; n < 100; n++) callers.of('proxy', { name: `${n}` }, {}, {}, 'flood')
  assert.equal(dropped.filter(({ principal }) => principal !== 'flood').length, 2)
})

test('closing the pool drops all', () => {
  const { dropped, callers, of } = pool()
  of('a')
  of('b')
  callers.closeAll()
  assert.equal(dropped.length, 2)
  assert.equal(callers.size, 0)
})

test('messages outside calls go to all listeners', () => {
  const caller = pool().of('a')
  const heard: unknown[] = []
  caller.listeners.add((server, { value }) => heard.push([server, value.method]))
  caller.listeners.add((server) => heard.push(server))
  caller.receive('s', message({ method: 'm' }))
  assert.deepEqual(heard, [['s', 'm'], 's'])
})

test('a server that asks outside of a call hears that nobody is there, and its ping is answered', () => {
  const caller = pool().of('a')
  const answers: unknown[] = []
  const answer = (text: string) => {
    answers.push(JSON.parse(text))
    return Promise.resolve()
  }
  caller.receive('s', message({ id: 1, method: 'roots/list' }), answer)
  caller.receive('s', message({ id: 2, method: 'ping' }), answer)
  assert.equal((answers[0] as { error: { code: number } }).error.code, -32601)
  assert.deepEqual((answers[1] as { result: object }).result, {})
})

test('descriptions of clients are bounded in memory, and released with their caller', () => {
  const greetings = greetingsOf({ max: 20_000, perClient: 10_000 })
  const { callers } = pool({ greetings })
  const info = (name: string) => ({ name, x: 'x'.repeat(4_000) })
  assert.ok(!('reason' in callers.of('client', info('a'), {}, {})))
  const second = callers.of('client', info('b'), {}, {})
  assert.equal('reason' in second && second.reason, 'overloaded')
  assert.ok(!('reason' in callers.of('another', info('b'), {}, {})))
  callers.closeAll()
  assert.equal(greetings.total, 0)
})

test('the client with the largest descriptions makes room for others, but not with a caller in use', async () => {
  const greetings = greetingsOf({ max: 40_000, perClient: 30_000 })
  const { clock, callers, dropped } = pool({ greetings })
  const info = (name: string) => ({ name, x: 'x'.repeat(4_000) })
  const hoard = ['1', '2', '3'].map(
    (name) => callers.of('shared', info(name), {}, {}, 'hoarder') as PooledCaller,
  )
  await clock.advance(2_000)
  hoard[0]!.calls = 1
  assert.ok(!isGatewayError(callers.of('shared', info('4'), {}, {}, 'other')))
  assert.deepEqual(dropped, [hoard[1]])
  assert.ok(!isGatewayError(callers.of('elsewhere', info('5'), {}, {}, '')))
  await clock.advance(2_000)
  assert.ok(!isGatewayError(callers.of('third', info('6'), {}, {}, '')))
  assert.equal(dropped.length, 2)
  assert.ok(!dropped.includes(hoard[0]!))
})

test('a tenant whose kinds of clients all have calls under way leaves the last eighth to tenants with few', () => {
  const { callers, refused } = pool({ perClient: 32 })
  const of = (tenant: string, name: string) => callers.of('client', { name }, {}, {}, '', tenant)
  const begin = (tenant: string, name: string) => {
    const caller = of(tenant, name)
    if (!isGatewayError(caller)) caller.calls++
    return caller
  }
  for (let i = 0; i < 40; i++) begin('many', `kind ${i}`)
  assert.equal(callers.size, 28)
  assert.deepEqual([...new Set(refused)], ['callers_per_tenant'])
  const few = [begin('few', 'a'), begin('few', 'b'), begin('few', 'c')]
  assert.deepEqual(few.map(isGatewayError), [false, false, true])
  // An idle caller makes room, also for its own tenant.
  const first = of('many', 'kind 0') as PooledCaller
  first.calls--
  assert.ok(!isGatewayError(of('many', 'another')))
  assert.equal(callers.size, 30)
})
