import assert from 'node:assert/strict'
import { test } from 'node:test'
import { toolCall } from '../support/caller.ts'
import { chaosApp, failing, TOKEN } from './chaos-app.ts'

const error503 = { type: 'error', statusCode: 503 }
/** Starting faults always needs the token. */
const starts = [
  ['POST', '/chaos/inject'],
  ['POST', '/chaos/renew'],
  ['PUT', '/admin/chaos'],
  ['POST', '/admin/chaos/arm'],
  ['POST', '/admin/chaos/unkill'],
  ['POST', '/admin/chaos/renew'],
] as const

const looks = [
  ['GET', '/chaos/status'],
  ['GET', '/admin/chaos'],
  ['GET', '/admin/chaos/journal'],
  ['GET', '/admin/chaos/faults/any'],
] as const

const stops = [
  ['POST', '/chaos/clear'],
  ['POST', '/chaos/clear-all'],
  ['POST', '/admin/chaos/kill'],
  ['POST', '/admin/chaos/disarm'],
] as const

/** Status without the token: on the paths of mcp-chaos-monkey the status of mcp-chaos-monkey. */
const statusWithout = (path: string) => (path.startsWith('/chaos/') ? 403 : 401)

const strangers = [
  { authorization: '' },
  { authorization: 'Bearer wrong' },
  { authorization: TOKEN },
  { authorization: `Bearer ${TOKEN}x` },
]

test('arming takes what injecting takes: the token, wherever that is from', async () => {
  for (const openToRead of [true, false]) {
    const { ask, controller } = chaosApp({ openToRead, config: { faults: [failing('a')] } })
    for (const [method, path] of starts) {
      for (const headers of strangers) {
        const answered = await ask(method, path, {}, { headers })
        const status = statusWithout(path)
        assert.deepEqual([answered.status, answered.headers['www-authenticate']], [status, 'Bearer'], path)
      }
      assert.notEqual((await ask(method, path, {})).status, statusWithout(path), path)
    }
    controller.disarm('me', 'enough')
  }
})

test('stopping takes no more than looking: nothing, unless the config sets a token', async () => {
  for (const [method, path] of [...looks, ...stops]) {
    for (const headers of strangers) {
      const open = await chaosApp().ask(method, path, undefined, { headers })
      assert.notEqual(open.status, statusWithout(path), path)
      const closed = await chaosApp({ openToRead: false }).ask(method, path, undefined, { headers })
      assert.equal(closed.status, statusWithout(path), path)
    }
  }
})

test('a fault is injected, told of, hits, and is cleared', async () => {
  const { ask, send } = chaosApp()
  const body = { target: 'test/t', config: error503, durationMs: 30_000 }
  const injected = await ask('POST', '/chaos/inject', body)
  assert.deepEqual(
    [injected.status, injected.body],
    [200, { faultId: 'fault-1', name: 'fault-1', type: 'http.status', durationMs: 30_000 }],
  )
  assert.equal((await send(toolCall('t'))).kind, 'failed')
  assert.equal((await send(toolCall('other'))).kind, 'answered')
  const { body: status } = await ask('GET', '/chaos/status')
  assert.deepEqual(status, {
    state: 'armed',
    faults: [
      {
        faultId: 'fault-1',
        id: 'fault-1',
        requestCount: 1,
        target: 'test/t',
        type: 'error',
        config: error503,
        remainingMs: 30_000,
        hits: 1,
      },
    ],
  })
  const cleared = await ask('POST', '/chaos/clear', { faultId: 'fault-1' })
  assert.deepEqual(cleared.body, { cleared: 'fault-1', existed: true })
  assert.equal((await send(toolCall('t'))).kind, 'answered')
  assert.deepEqual((await ask('GET', '/chaos/status')).body.faults, [])
  // The creator of an expired fault may still ask about its result.
  const { body: over } = await ask('GET', '/admin/chaos/faults/fault-1')
  assert.deepEqual([over.id, over.armed, over.injected, over.hits], ['fault-1', false, 1, 1])
  assert.equal((await ask('GET', '/admin/chaos/faults/fault-2')).status, 404)
  // Clearing an expired fault succeeds, as in mcp-chaos-monkey; a request without an id is an error.
  const again = await ask('POST', '/chaos/clear', { faultId: 'fault-1' })
  assert.deepEqual([again.status, again.body], [200, { cleared: 'fault-1', existed: false }])
  assert.equal((await ask('POST', '/chaos/clear', {})).status, 400)
})

test('a request in snake_case gets an answer in snake_case', async () => {
  const { ask } = chaosApp()
  const config = { type: 'error', status_code: 500 }
  const injected = await ask('POST', '/chaos/inject', { target: 's', config, duration_ms: 5_000 })
  assert.deepEqual(injected.body, {
    fault_id: 'fault-1',
    name: 'fault-1',
    type: 'http.status',
    duration_ms: 5_000,
  })
  const { body } = await ask('GET', '/chaos/status?style=snake_case')
  assert.deepEqual(body.faults[0], {
    fault_id: 'fault-1',
    id: 'fault-1',
    request_count: 0,
    target: 's',
    type: 'error',
    config,
    remaining_ms: 5_000,
    hits: 0,
  })
  assert.equal((await ask('POST', '/chaos/clear', { fault_id: 'fault-1' })).status, 200)
})

test('every type of mcp-chaos-monkey can be injected', async () => {
  const { ask } = chaosApp()
  const configs = [
    { type: 'latency', delayMs: 5 },
    error503,
    { type: 'timeout', hangMs: 5 },
    { type: 'malformed', corruptResponse: true },
    { type: 'connection-refused' },
    { type: 'connection-drop' },
    { type: 'rate-limit', retryAfterSeconds: 1 },
    { type: 'schema-mismatch', missingFields: ['a'] },
    { type: 'schema-mismatch' },
    { type: 'connection-drop', afterBytes: 10 },
    { type: 'connection-drop', afterMs: 10 },
  ]
  for (const config of configs) {
    const { status, body } = await ask('POST', '/chaos/inject', { target: '*', config })
    assert.equal(status, 200, `${config.type}: ${JSON.stringify(body)}`)
  }
  const { body } = await ask('GET', '/chaos/status')
  assert.deepEqual(
    (body.faults as readonly { type: string }[]).map(({ type }) => type),
    configs.map(({ type }) => type),
  )
})

test('a fault of a plan can be injected without name and ttl, in either style', async () => {
  const { ask, controller } = chaosApp()
  const config = {
    type: 'rpc.error',
    rate: 0.5,
    when: { on_call: 3 },
    max_injections: 2,
    match: { tenant: 'x' },
  }
  assert.equal((await ask('POST', '/chaos/inject', { target: 's*/q?', config })).status, 200)
  const [fault] = controller.status().faults
  assert.deepEqual(
    [fault?.name, fault?.config.ttl, fault?.config.when, fault?.config.maxInjections, fault?.config.match],
    ['fault-1', 900_000, { onCall: 3 }, 2, { tenant: 'x', server: 's*', tool: 'q?' }],
  )
})

test('tools that may write are hit by foreign faults that run nothing, and by all others only when told so', async () => {
  const { ask, controller } = chaosApp()
  const allowed = async (config: object, more: object = {}) => {
    const { body } = await ask('POST', '/chaos/inject', { target: '*', config, ...more })
    const { allowWrites } = controller.status().faults.at(-1)!.config
    const isSaid = 'allowWrites' in more || 'allow_writes' in more
    assert.equal(body.note !== undefined, !allowWrites && !isSaid, 'a note on spared writes')
    return allowWrites
  }
  const own = { type: 'rpc.error', rate: 1 }
  assert.equal(await allowed(error503), true)
  assert.equal(await allowed(error503, { allowWrites: false }), false)
  const runNothing = [
    { type: 'latency', delayMs: 5 },
    { type: 'connection-refused' },
    { type: 'rate-limit', retryAfterSeconds: 1 },
  ]
  for (const config of runNothing) assert.equal(await allowed(config), true, config.type)
  const mayHaveRun = [
    { type: 'timeout', hangMs: 5 },
    { type: 'malformed', corruptResponse: true },
    { type: 'connection-drop' },
    { type: 'connection-drop', afterMs: 5 },
    { type: 'schema-mismatch', missingFields: ['a'] },
  ]
  for (const config of mayHaveRun) {
    assert.equal(await allowed(config), false, config.type)
    assert.equal(await allowed(config, { allowWrites: true }), true, config.type)
  }
  const repeating = ['fanout.amplify', 'retry.storm', 'rpc.duplicate', 'rpc.late', 'conn.reset', 'sse.cut']
  for (const type of repeating) assert.equal(await allowed({ type, rate: 1 }), false, type)
  assert.equal(await allowed(own), false)
  assert.equal(await allowed(own, { allow_writes: true }), true)
})

test('a fault that hits no tool call leaves no tools out', async () => {
  const { ask } = chaosApp()
  for (const config of [
    { type: 'initialize.refused', rate: 1 },
    { type: 'rpc.error', rate: 1, match: { method: 'resources/*' } },
  ]) {
    const { status, body } = await ask('POST', '/chaos/inject', { target: '*', config })
    assert.deepEqual([status, body.note], [200, undefined], config.type)
  }
})

test('a fault lasts as long as the config allows at most, and is gone by itself', async () => {
  const { ask, clock } = chaosApp({ config: { maxTtl: '1m' } })
  const { body } = await ask('POST', '/chaos/inject', { target: '*', config: error503 })
  assert.deepEqual([body.durationMs, body.warnings], [60_000, undefined])
  await clock.advance(60_000)
  assert.deepEqual((await ask('GET', '/chaos/status')).body, { state: 'disarmed', faults: [] })
  assert.equal(clock.pending, 0)
  const longer = await ask('POST', '/chaos/inject', { target: '*', config: error503, durationMs: 61_000 })
  assert.deepEqual(
    [longer.body.type, longer.body.durationMs, longer.body.warnings],
    ['http.status', 60_000, ['durationMs: cut to chaos.maxTtl (1m)']],
  )
})

test('a fault with a duration of 0 is taken, and over at once', async () => {
  const { ask, clock } = chaosApp()
  const { status } = await ask('POST', '/chaos/inject', { target: '*', config: error503, durationMs: 0 })
  assert.equal(status, 200)
  await clock.advance(1)
  assert.deepEqual((await ask('GET', '/chaos/status')).body.faults, [])
})

test('a target is what the aliases of the config say; one that is nothing is refused with their name', async () => {
  const targets = () => ({
    servers: [{ name: 'cache', kind: { transport: 'http' as const, era: undefined } }],
    arms: [],
  })
  const { ask, controller } = chaosApp({ config: { aliases: { redis: 'cache/get' } }, targets })
  for (const config of [error503, { type: 'rpc.error', rate: 1 }]) {
    const injected = await ask('POST', '/chaos/inject', { target: 'redis', config })
    assert.equal(injected.status, 200, JSON.stringify(injected.body))
    assert.deepEqual(controller.status().faults.at(-1)?.config.match, { server: 'cache', tool: 'get' })
    const refused = await ask('POST', '/chaos/inject', { target: 'oauth-token', config })
    assert.equal(refused.status, 400)
    assert.deepEqual(refused.body.findings, [
      {
        path: 'target',
        message:
          '"oauth-token" is no server here; there is cache; "aliases" can map the target to SERVER or SERVER/TOOL',
      },
    ])
  }
})

test('a body that is wrong is refused with what is wrong, and uses up no name', async () => {
  const { ask, controller } = chaosApp()
  const findings = async (body: unknown) => {
    const answered = await ask('POST', '/chaos/inject', body)
    assert.equal(answered.status, 400)
    return JSON.stringify(answered.body.findings)
  }
  assert.match(await findings({}), /target.*missing/)
  assert.match(await findings({ target: '', config: error503 }), /SERVER/)
  assert.match(await findings({ target: 's', config: error503, durationSeconds: 1 }), /unknown key/)
  assert.match(await findings({ target: 's', config: { type: 'eror' } }), /did you mean error/)
  assert.match(await findings({ target: 's', config: { type: 'error', statusCode: 99 } }), /statusCode/)
  assert.match(
    await findings({ target: 's', config: { type: 'rpc.eror', rate: 1 } }),
    /did you mean rpc\.error/,
  )
  assert.match(await findings({ target: 's', config: { type: 'rpc.error' } }), /rate.*missing/)
  assert.match(await findings({ target: 's/t', config: { type: 'registry.slow_list', rate: 1 } }), /tool/)
  await ask('POST', '/chaos/inject', { target: 's', config: error503 })
  assert.equal(controller.status().faults[0]?.name, 'fault-1')
})

test('a refusal comes with its reason', async () => {
  const refusals = [
    [{ environment: 'production' }, /environment/],
    [{ variables: { NODE_ENV: 'production' } }, /NODE_ENV/],
    [{ config: { enabled: false } }, /chaos\.enabled/],
  ] as const
  for (const [parts, why] of refusals) {
    const { ask } = chaosApp(parts)
    const { status, body } = await ask('POST', '/chaos/inject', { target: '*', config: error503 })
    assert.equal(status, 500)
    assert.match(String(body.error), why)
  }
})

test('a thousand faults are the most, and all go at once; those of the plan stay', async () => {
  const { ask, controller } = chaosApp({ config: { faults: [failing('fault-1')] } })
  controller.arm('me', 'a test')
  const inject = () => ask('POST', '/chaos/inject', { target: '*', config: error503 })
  for (let number = 0; number < 1_000; number++) assert.equal((await inject()).status, 200)
  const { status, body } = await inject()
  assert.deepEqual([status, body.error], [500, 'too many faults (1000 of 1000)'])
  assert.deepEqual((await ask('POST', '/chaos/clear-all')).body, { cleared: 'all', count: 1_000 })
  assert.deepEqual(
    controller.status().faults.map(({ name, armed }) => [name, armed]),
    [['fault-1', true]],
  )
})
