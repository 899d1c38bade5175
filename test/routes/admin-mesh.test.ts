import fastify from 'fastify'
import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { config as schema } from '../../src/config/schema/schema.ts'
import { metStates } from '../../src/control/orders.ts'
import { compileMesh } from '../../src/mesh/compile.ts'
import { liveWith } from '../support/live.ts'
import type { ArmSettings } from '../../src/mesh/settings.ts'
import { policies } from '../../src/policies/index.ts'
import { Names } from '../../src/registry/names.ts'
import { registerAdminMesh } from '../../src/routes/admin.ts'
import { createMetrics } from '../../src/telemetry/metrics.ts'
import { collectStates } from '../../src/telemetry/scrape.ts'
import { failed } from '../policies/breaker/rig.ts'
import { testServer } from '../registry/test-server.ts'
import { newCall, toolCall } from '../support/caller.ts'
import { testPolicyContext } from '../support/policy-context.ts'
import type { Json } from '../support/memory-pipe.ts'
import { noFaults } from '../support/no-faults.ts'

type Arms = Readonly<Record<string, ArmSettings>>

const meshConfig = {
  defaults: { breaker: {} },
  overrides: [
    { match: { server: 's', tool: 'a' }, breaker: { consecutive: 2 } },
    { match: { method: 'resources/*' }, breaker: { consecutive: 3 } },
  ],
  sets: { cautious: { retry: false, breaker: { consecutive: 1 } }, bare: { breaker: false } },
}

const armsOfAb = {
  'ab/bold': { set: 'cautious', takes: () => true, share: 0.5 },
  'ab/bare': { set: 'bare', takes: () => true, share: 0.25 },
}

/** The routes over one server with failing calls. */
async function admin(t: TestContext, first: object = meshConfig, firstArms: Arms = armsOfAb) {
  const { server, clock, start } = testServer()
  await start()
  const servers = new Map([['s', server]])
  const context = testPolicyContext(clock)
  function generationOf(configured: object, arms: Arms) {
    const config = schema.parse({ policies: configured })
    const settings = { ...config.policies, arms }
    const mesh = compileMesh({
      policies,
      config: settings,
      context,
      servers,
      readdress: () => undefined,
      observe: (next) => next,
      attempt: (next) => next,
      faults: noFaults,
      transport: () => Promise.resolve(failed('upstream_refused')),
    })
    return {
      config,
      hash: '',
      servers,
      names: new Names('__'),
      mesh,
      policies: settings,
      state: context.state,
      serviceFor: () => assert.fail('no call'),
      clientFaults: () => undefined,
      patienceMs: 0,
      follow: () => undefined,
      close: () => undefined,
    }
  }
  const live = liveWith(generationOf(first, firstArms), clock)
  /** Applies other policies or arms, as a reload does. */
  const reconfigure = (configured: object, arms: Arms) => {
    const next = generationOf(configured, arms)
    context.state.settle((key) => (next.mesh.hasSet(key.set) ? key : undefined))
    live.swap(next)
  }
  const app = fastify()
  registerAdminMesh(app, { live, state: context.state, clock })
  t.after(() => app.close())
  const get = async <Body = Json>(url: string) => {
    const { statusCode, body } = await app.inject({ url })
    return { status: statusCode, body: JSON.parse(body) as Body }
  }
  const order = async <Body = Json>(path: string, payload: unknown = { action: 'open' }) => {
    const headers = { 'content-type': 'application/json' }
    const url = `/admin/breakers/${path}`
    const reply = await app.inject({ method: 'POST', url, headers, payload: JSON.stringify(payload) })
    return { status: reply.statusCode, body: JSON.parse(reply.body) as Body }
  }
  const call = (set?: string) =>
    live.current.mesh.serviceFor('s', 'tools/call', 'a', set)(toolCall('a', {}, { server: 's' }))
  const list = () =>
    live.current.mesh.serviceFor('s', 'tools/list', undefined)(newCall({ method: 'tools/list', server: 's' }))
  const read = () =>
    live.current.mesh.serviceFor(
      's',
      'resources/read',
      undefined,
    )(newCall({ method: 'resources/read', server: 's' }))
  /** Returns the arms whose breaker is open, by the metrics. */
  const openByMetrics = async () => {
    const metrics = createMetrics()
    metrics.arms.follow(Object.keys(live.current.policies.arms ?? {}))
    collectStates(metrics, (kind) => metStates(kind, { live, state: context.state }))
    const text = await metrics.registry.metrics()
    return [...text.matchAll(/^breakwater_breaker_state\{.*state="open"(?:,arm="(.*)")?\} 1$/gm)].map(
      ([, arm = 'default']) => arm,
    )
  }
  /** Without gates, which are listed there too. */
  const breakers = async () => (await get<Json[]>('/admin/breakers')).body.filter(({ tool }) => tool !== '*')
  return {
    get,
    breakers,
    order,
    call,
    list,
    read,
    openByMetrics,
    reconfigure,
    forgetSet: (set: string) => context.state.forgetSet(set),
  }
}

interface Chain {
  readonly layer: string
  readonly config?: Json
  readonly from?: string
}

interface OfServer {
  readonly server: string
  readonly other: Chain[]
  readonly tools: Record<string, Chain[]>
  readonly learned: Json
}

const layer = (chain: Chain[] | undefined, name: string) => chain?.find((one) => one.layer === name)

test('the chain of each tool shows every setting, and who decided it', async (t) => {
  const { get } = await admin(t)
  const [shown] = (await get<OfServer[]>('/admin/mesh')).body
  assert.equal(shown?.server, 's')
  assert.deepEqual(Object.keys(shown?.tools ?? {}), ['a'])
  const chain = shown?.tools.a
  assert.equal(chain?.[0]?.layer, 'observe')
  assert.equal(chain?.at(-1)?.layer, 'transport')
  assert.equal(layer(chain, 'breaker')?.from, 'override 0')
  assert.equal(layer(chain, 'breaker')?.config?.consecutive, 2)
  assert.equal(layer(chain, 'retry')?.from, 'default')
  assert.equal(layer(shown?.other, 'breaker')?.from, 'default')
  assert.equal(layer(chain, 'degrade'), undefined, 'a policy without settings is not in force')
})

test('how long calls wait for a lost server is shown with the reason', async (t) => {
  const { get, call } = await admin(t)
  await call()
  const [shown] = (await get<OfServer[]>('/admin/mesh')).body
  assert.deepEqual(shown?.learned, { gate: { patience: { ms: 20_000, why: 'as configured (20s)' } } })
})

test('a set shows its changes, and the rest unchanged', async (t) => {
  const { get } = await admin(t)
  const [shown] = (await get<OfServer[]>('/admin/mesh?set=cautious')).body
  assert.equal(layer(shown?.tools.a, 'breaker')?.from, 'set cautious')
  assert.equal(layer(shown?.tools.a, 'retry'), undefined)
  assert.equal(layer(shown?.tools.a, 'deadline')?.from, 'default')
})

test('a set that does not exist is named, with those that do', async (t) => {
  const { get } = await admin(t)
  for (const set of ['nothing', '', 'toString', '__proto__', 'constructor', 'x'.repeat(1_000)]) {
    const { status, body } = await get(`/admin/mesh?set=${set}`)
    assert.equal(status, 404, set)
    assert.deepEqual(body, {
      error: `unknown policy set "${set.slice(0, 64)}"`,
      sets: ['default', 'cautious', 'bare'],
    })
  }
  assert.equal((await get('/admin/mesh?set=default&set=cautious')).status, 404)
})

test('breakers are listed from their first call on, and obey orders', async (t) => {
  const { get, breakers, order, call } = await admin(t)
  assert.deepEqual((await get('/admin/breakers')).body, [])
  assert.match(String((await order('s/a')).body.error), /no breaker of s\/a yet/)
  await call()
  const opened = await order<Json[]>('s/a')
  assert.equal(opened.status, 200)
  const { set, server, tool, replica, state, dimension } = opened.body[0] ?? {}
  assert.deepEqual([set, server, tool, replica, state, dimension], ['default', 's', 'a', 0, 'open', 'manual'])
  assert.deepEqual(await breakers(), opened.body)
  assert.equal((await call()).kind, 'rejected')
  for (const action of ['close', 'reset']) {
    const { body } = await order<Json[]>('s/a', { action })
    assert.equal(body[0]?.state, 'closed')
  }
})

test('the gate of a server is listed beside the breakers of its tools, and obeys no orders', async (t) => {
  const { get, order, call } = await admin(t)
  await call()
  const { body } = await get<Json[]>('/admin/breakers')
  const gates = body.filter(({ tool }) => tool === '*')
  assert.deepEqual(
    gates.map(({ set, server, state, waiting }) => [set, server, state, waiting]),
    [['default', 's', 'closed', 0]],
  )
  const { status, body: refused } = await order('s/*')
  const why = 's/* is not a breaker and cannot be opened or closed by hand'
  assert.deepEqual([status, refused.error], [404, why])
})

test('an order for one set leaves the others alone', async (t) => {
  const { breakers, order, call } = await admin(t)
  await call()
  await call('cautious')
  assert.equal((await order('s/a?set=cautious', { action: 'open' })).status, 200)
  assert.deepEqual(
    (await breakers()).map(({ set, state, manual }) => [set, state, manual]),
    [
      ['default', 'closed', false],
      ['cautious', 'open', true],
    ],
  )
})

test('settings and state of an arm are shown under its name, and obey orders', async (t) => {
  const { get, breakers, order, call } = await admin(t)
  await call()
  await call('ab/bold')
  const sets = (states: Json[] = []) => states.map(({ set }) => set)
  assert.deepEqual(sets(await breakers()), ['default', 'ab/bold'])
  const { body } = await get<Record<string, Json[]>>('/admin/budgets')
  assert.deepEqual(sets(body.bulkhead), ['default', 'ab/bold'])
  const [shown] = (await get<OfServer[]>('/admin/mesh?set=ab/bold')).body
  assert.equal(layer(shown?.tools.a, 'breaker')?.from, 'set cautious')
  assert.equal((await order('s/a?set=ab/bold')).status, 200)
  assert.equal((await call('ab/bold')).kind, 'rejected')
  assert.equal((await call()).kind, 'failed')
})

test('an order that names no set acts in all arms, those without a call so far or without a breaker included', async (t) => {
  const { breakers, order, call } = await admin(t)
  const all = [undefined, 'cautious', 'ab/bold', 'ab/bare']
  await call()
  await call('cautious')
  const opened = (await order<Json[]>('s/a')).body
  assert.deepEqual(
    opened.map(({ set, state, manual }) => [set, state, manual]),
    ['default', 'cautious', 'ab/bold', 'ab/bare'].map((set) => [set, 'open', true]),
  )
  assert.deepEqual(await breakers(), opened)
  for (const set of all) assert.equal((await call(set)).kind, 'rejected', set)
  assert.equal((await order('s/a?set=ab/bold', { action: 'close' })).status, 200)
  assert.equal((await call('ab/bold')).kind, 'failed')
  assert.equal((await call()).kind, 'rejected')
  await order('s/a', { action: 'close' })
  for (const set of all) assert.equal((await call(set)).kind, 'failed', set)
  assert.ok((await breakers()).every(({ manual }) => manual === false))
})

/** A breaker only in one arm of an experiment. */
const onlyInArm = { sets: { brk: { breaker: {} } } }
const armsOfE1 = {
  'e1/control': { set: 'default', takes: () => true, share: 0.5 },
  'e1/treatment': { set: 'brk', takes: () => true, share: 0.25 },
}
const allOfE1 = [undefined, 'e1/control', 'e1/treatment']

for (const action of ['close', 'reset'])
  test(`a breaker that was opened by hand is listed without its experiment too, and obeys ${action}`, async (t) => {
    const { breakers, order, call, reconfigure } = await admin(t, onlyInArm, armsOfE1)
    await call('e1/treatment')
    assert.equal((await order('s/a')).status, 200)
    reconfigure(onlyInArm, {})
    assert.equal((await call()).kind, 'failed')
    const why = 'opened by hand; calls pass, since no policy set has a breaker for them now'
    assert.deepEqual(
      (await breakers()).map((row) => [row.set, row.tool, row.state, row.manual, row.why]),
      [['default', 'a', 'open', true, why]],
    )
    assert.deepEqual(await order('s/a', { action }), { status: 200, body: [] })
    assert.deepEqual(await breakers(), [])
    reconfigure(onlyInArm, armsOfE1)
    for (const set of allOfE1) assert.equal((await call(set)).kind, 'failed', set)
  })

test('a breaker that is held open when its experiment starts again is listed for each set that refuses, in metrics too', async (t) => {
  const { breakers, order, call, reconfigure, forgetSet, openByMetrics } = await admin(t, onlyInArm, armsOfE1)
  await call('e1/treatment')
  await order('s/a')
  reconfigure(onlyInArm, {})
  for (const arm of Object.keys(armsOfE1)) forgetSet(arm)
  reconfigure(onlyInArm, armsOfE1)
  for (const set of allOfE1.slice(0, 2)) assert.equal((await call(set)).kind, 'rejected', set)
  assert.deepEqual(
    (await breakers()).map(({ set, state, why }) => [set, state, why]),
    ['default', 'e1/control', 'e1/treatment'].map((set) => [set, 'open', 'opened by hand']),
  )
  assert.deepEqual(await openByMetrics(), ['default', 'e1/control', 'e1/treatment'])
  assert.equal((await order('s/a?set=e1/control', { action: 'close' })).status, 200)
  assert.equal((await call('e1/control')).kind, 'failed')
  assert.equal((await call()).kind, 'rejected')
  await order('s/a')
  assert.equal((await call('e1/control')).kind, 'rejected', 'the later order for all sets counts')
  assert.equal((await order('s/a', { action: 'close' })).status, 200)
  for (const set of allOfE1) assert.equal((await call(set)).kind, 'failed', set)
})

test('a breaker that was closed while its experiment was stopped stays closed when it starts again', async (t) => {
  const { order, call, reconfigure } = await admin(t, onlyInArm, armsOfE1)
  await call('e1/treatment')
  await order('s/a')
  reconfigure(onlyInArm, {})
  await order('s/a', { action: 'close' })
  reconfigure(onlyInArm, armsOfE1)
  for (const set of allOfE1) assert.equal((await call(set)).kind, 'failed', set)
})

test('a breaker that a reload has removed from the config is listed only while held open', async (t) => {
  const { breakers, order, call, reconfigure, openByMetrics } = await admin(t)
  await call()
  reconfigure({}, {})
  assert.deepEqual(await breakers(), [])
  reconfigure(meshConfig, {})
  await order('s/a')
  reconfigure({}, {})
  assert.equal((await call()).kind, 'failed')
  assert.match(JSON.stringify(await breakers()), /calls pass, since no policy set has a breaker/)
  assert.deepEqual(await openByMetrics(), [])
  reconfigure(meshConfig, {})
  assert.deepEqual(await openByMetrics(), ['default'])
  assert.equal((await call()).kind, 'rejected')
  assert.doesNotMatch(JSON.stringify(await breakers()), /calls pass/)
})

test('a breaker whose arm was away shows what was done by hand meanwhile, before its next call', async (t) => {
  const { breakers, order, call, reconfigure } = await admin(t)
  for (const set of [undefined, 'ab/bold']) await call(set)
  const held = async () => new Map((await breakers()).map(({ set, manual }) => [set, manual]))
  for (const action of ['open', 'close']) {
    reconfigure(meshConfig, {})
    assert.equal((await order('s/a', { action })).status, 200)
    reconfigure(meshConfig, armsOfAb)
    assert.equal((await held()).get('ab/bold'), action === 'open')
  }
})

test('breakers closed set by set stay closed when their experiment starts again', async (t) => {
  const { breakers, order, call, reconfigure, forgetSet } = await admin(t, meshConfig, armsOfAb)
  for (const set of [undefined, 'ab/bold']) await call(set)
  await order('s/a')
  for (const set of ['default', 'ab/bold', 'ab/bare']) await order(`s/a?set=${set}`, { action: 'close' })
  reconfigure(meshConfig, {})
  for (const arm of Object.keys(armsOfAb)) forgetSet(arm)
  reconfigure(meshConfig, armsOfAb)
  for (const set of [undefined, 'ab/bold', 'ab/bare']) assert.equal((await call(set)).kind, 'failed', set)
  assert.ok((await breakers()).every(({ manual }) => manual === false))
})

test('arms stay held when only the default set is closed, and later arms are not held', async (t) => {
  const { order, call, reconfigure, forgetSet } = await admin(t, meshConfig, armsOfAb)
  for (const set of [undefined, 'ab/bold']) await call(set)
  await order('s/a')
  await order('s/a?set=default', { action: 'close' })
  assert.equal((await call()).kind, 'failed')
  for (const set of ['ab/bold', 'ab/bare']) assert.equal((await call(set)).kind, 'rejected', set)
  reconfigure(meshConfig, {})
  for (const arm of Object.keys(armsOfAb)) forgetSet(arm)
  reconfigure(meshConfig, armsOfAb)
  for (const set of ['ab/bold', 'ab/bare']) assert.equal((await call(set)).kind, 'failed', set)
})

test('an order for the set default acts in that set alone', async (t) => {
  const { breakers, order, call } = await admin(t)
  for (const set of [undefined, 'ab/bold']) await call(set)
  assert.equal((await order('s/a?set=default')).status, 200)
  assert.equal((await call()).kind, 'rejected')
  for (const set of ['ab/bold', 'ab/bare']) assert.equal((await call(set)).kind, 'failed', set)
  await order('s/a?set=default', { action: 'close' })
  assert.ok((await breakers()).every(({ manual }) => manual === false))
})

test('a refused order says whether a breaker is configured, and in which sets', async (t) => {
  const { order, call } = await admin(t, onlyInArm, armsOfE1)
  const errorOf = async (path: string) => (await order(path)).body.error
  const yet = 'no breaker of s/a yet: it begins with the first call'
  for (const path of ['s/a', 's/a?set=e1/treatment']) assert.equal(await errorOf(path), yet)
  await call('e1/treatment')
  for (const set of ['default', 'e1/control', 'nosuch'])
    assert.equal(
      await errorOf(`s/a?set=${set}`),
      `no breaker of s/a in the policy set "${set}"; sets that have one: e1/treatment`,
    )
  assert.equal(await errorOf('nosuch/a'), 'no breaker is configured for nosuch/a')
  const elsewhere = { 'e1/treatment': { ...armsOfE1['e1/treatment'], takes: () => false } }
  assert.equal(
    (await (await admin(t, onlyInArm, elsewhere)).order('s/a')).body.error,
    'no breaker is configured for s/a',
  )
  const bare = await admin(t, {}, {})
  for (const path of ['s/a', 's/_other', 's/a?set=nosuch'])
    assert.equal(
      (await bare.order(path)).body.error,
      `no breaker is configured for ${path.replace(/\?.*/, '')}`,
    )
})

test('an override for some of the other requests of a server configures a breaker for those', async (t) => {
  const overrides = [
    { match: { server: 's' }, breaker: false },
    { match: { server: 's', method: 'resources/*' }, breaker: {} },
    { match: { server: 'else' }, breaker: {} },
  ]
  const { order, list, read } = await admin(t, { overrides }, {})
  await list()
  assert.equal(
    (await order('s/_other')).body.error,
    'no breaker of s/_other yet: it begins with the first call',
  )
  await read()
  assert.equal((await order('s/_other')).status, 200)
  assert.equal((await read()).kind, 'rejected')
  assert.equal((await order('s/a')).body.error, 'no breaker is configured for s/a')
})

test('requests that are no calls of a listed tool have a breaker under a name of their own', async (t) => {
  const { order, list } = await admin(t)
  assert.equal((await order('s/_other')).status, 404)
  await list()
  assert.equal((await order('s/_other')).status, 200)
})

test('other requests with settings of their own have a breaker of their own, and obey the same orders', async (t) => {
  const { breakers: listed, order, list, read } = await admin(t, meshConfig, {})
  // In turn, twice: neither request replaces the other's breaker.
  for (const request of [list, read, list]) await request()
  const breakers = async () => (await listed()).map(({ overrides, state }) => [overrides, state])
  const ofResources = [{ method: 'resources/*' }]
  assert.deepEqual(await breakers(), [
    [undefined, 'closed'],
    [ofResources, 'closed'],
  ])
  assert.equal((await order('s/_other')).status, 200)
  for (const request of [list, read]) assert.equal((await request()).kind, 'rejected')
  assert.deepEqual(
    (await breakers()).map(([, state]) => state),
    ['open', 'open'],
  )
  await order('s/_other', { action: 'close' })
  for (const outcome of [await list(), await read()]) assert.equal(outcome.kind, 'failed')
})

test('an order that makes no sense is refused', async (t) => {
  const { order, call } = await admin(t)
  await call()
  for (const body of [{ action: 'explode' }, {}, null, [], { action: ['open'] }, 'open']) {
    const { status, body: told } = await order('s/a', body)
    assert.equal(status, 400, JSON.stringify(body))
    assert.match(JSON.stringify(told.findings), /reset|expected a map/, JSON.stringify(body))
  }
  for (const path of ['s/b', 'other/a', 's/a?set=nothing', 's/_other'])
    assert.equal((await order(path)).status, 404, path)
})

test('budgets are listed by kind, also those that nobody has used', async (t) => {
  const { get, call } = await admin(t)
  await call()
  const { body } = await get<Record<string, Json[]>>('/admin/budgets')
  assert.deepEqual(Object.keys(body), [
    'retry-budget',
    'rate-limit',
    'rate-limit-quota',
    'bulkhead',
    'adaptive-concurrency',
  ])
  assert.ok(body['retry-budget']?.some(({ server, balance }) => server === 's' && Number(balance) > 0))
  assert.ok(body.bulkhead?.some(({ server }) => server === 's'))
  assert.deepEqual(body['adaptive-concurrency'], [])
})
