import assert from 'node:assert/strict'
import { test } from 'node:test'
import { toolCall } from '../support/caller.ts'
import { chaosApp, failing, TOKEN } from './chaos-app.ts'

test('a plan is put, armed and disarmed, with its state each time', async () => {
  const { ask, send } = chaosApp()
  const put = await ask('PUT', '/admin/chaos', { seed: 7, faults: [failing('a')] })
  assert.deepEqual([put.status, put.body.state, put.body.seed], [200, 'disarmed', 7])
  assert.equal((await send(toolCall('t'))).kind, 'answered')
  const armed = await ask('POST', '/admin/chaos/arm', { by: 'me', why: 'a test' })
  assert.deepEqual(
    [armed.status, armed.body.state, armed.body.by, armed.body.why],
    [200, 'armed', 'me', 'a test'],
  )
  await send(toolCall('t'))
  const { body } = await ask('GET', '/admin/chaos')
  assert.deepEqual([body.faults[0].name, body.faults[0].hits], ['a', 1])
  const disarmed = await ask('POST', '/admin/chaos/disarm')
  assert.deepEqual([disarmed.body.state, disarmed.body.by], ['disarmed', 'admin API'])
})

test('a plan put while another is armed replaces the other, and keeps unnamed settings', async () => {
  const { ask, controller } = chaosApp({ config: { seed: 5, lease: '1m', faults: [failing('old')] } })
  controller.arm('me', 'a test')
  const { body } = await ask('PUT', '/admin/chaos?by=me', { faults: [failing('new')] })
  assert.deepEqual(
    (body.faults as readonly { name: string; armed: boolean }[]).map(({ name, armed }) => [name, armed]),
    [['new', true]],
  )
  assert.equal(body.seed, 0, 'a plan inherits no settings of the config or of another plan')
  assert.equal(controller.config.lease, 60_000)
  const told = controller.journal.entries().findLast((entry) => entry.kind === 'control')
  assert.deepEqual([told?.type, told?.by], ['plan', 'me'])
})

test('plans of both other tools can be put as they are', async () => {
  const { ask } = chaosApp()
  const mcpChaos = { seed: 3, mode: 'shadow', faults: [{ type: 'latency' }] }
  const first = await ask('PUT', '/admin/chaos', mcpChaos)
  assert.deepEqual(
    [first.status, first.body.seed, first.body.mode, first.body.faults[0].type],
    [200, 3, 'shadow', 'conn.latency'],
  )
  const monkey = [{ target: 'search/query', config: { type: 'error', statusCode: 500 } }]
  const second = await ask('PUT', '/admin/chaos', monkey)
  assert.deepEqual([second.status, second.body.seed, second.body.faults[0].target], [200, 0, 'search/query'])
})

test('a plan inherits nothing unnamed from the plan before', async () => {
  const { ask } = chaosApp({ config: { mode: 'shadow', seed: 9, faults: [failing('old')] } })
  for (const faults of [[failing('new')], [{ target: '*', config: { type: 'error', statusCode: 500 } }]]) {
    await ask('PUT', '/admin/chaos', { seed: 7, mode: 'shadow', faults: [failing('yesterday')] })
    const { status, body } = await ask('PUT', '/admin/chaos', { faults })
    assert.deepEqual([status, body.seed, body.mode, body.faults.length], [200, 0, 'act', 1])
  }
})

test('the second of two operators with the same state is told that the state has changed', async () => {
  const { ask, controller } = chaosApp({ config: { faults: [failing('a')] } })
  const { headers } = await ask('GET', '/admin/chaos')
  const read = String(headers.etag)
  assert.match(read, /^"[\w-]+"$/)
  assert.equal((await ask('GET', '/chaos/status')).headers.etag, read)
  const ifMatch = (etag: string) => ({ headers: { authorization: `Bearer ${TOKEN}`, 'if-match': etag } })

  const first = await ask('PUT', '/admin/chaos', { faults: [failing('b')] }, ifMatch(read))
  assert.equal(first.status, 200)
  const now = String(first.headers.etag)
  assert.notEqual(now, read)
  const error503 = { target: '*', config: { type: 'error', statusCode: 503 } }
  const late = [
    ['PUT', '/admin/chaos', { faults: [failing('c')] }],
    ['POST', '/admin/chaos/arm', {}],
    ['POST', '/admin/chaos/renew', {}],
    ['POST', '/admin/chaos/unkill', {}],
    ['POST', '/chaos/inject', error503],
    ['POST', '/chaos/clear', { faultId: 'fault-1' }],
    ['POST', '/chaos/clear-all', {}],
  ] as const
  for (const [method, path, body] of late) {
    for (const etag of [read, `W/${now}`, '"x", "y"', '']) {
      const answered = await ask(method, path, body, ifMatch(etag))
      assert.deepEqual([answered.status, answered.headers.etag], [412, now], `${path} ${etag}`)
      assert.match(
        String(answered.body.error),
        /changed since you read them: the current tag is ".*", but If-Match says/,
      )
    }
  }
  assert.deepEqual(
    controller.status().faults.map(({ name, armed }) => [name, armed]),
    [['b', false]],
  )
  // Each change gives the next tag; counters, reads and refusals give none.
  let tag = now
  for (const [method, path, body] of [
    ['PUT', '/admin/chaos', { faults: [failing('d')] }],
    ['POST', '/admin/chaos/arm', {}],
    ['POST', '/chaos/inject', error503],
    ['POST', '/chaos/clear', { faultId: 'fault-1' }],
  ] as const) {
    const answered = await ask(method, path, body, ifMatch(`"x", ${tag}`))
    assert.equal(answered.status, 200, `${path}: ${JSON.stringify(answered.body)}`)
    assert.notEqual(answered.headers.etag, tag)
    tag = String(answered.headers.etag)
  }
  assert.equal((await ask('GET', '/admin/chaos')).headers.etag, tag)
  assert.equal((await ask('POST', '/admin/chaos/arm', {}, ifMatch('*'))).status, 200)
  assert.equal((await ask('POST', '/chaos/clear-all', {})).status, 200, 'If-Match is optional')
})

test('stopping works whatever If-Match says', async () => {
  for (const stop of ['disarm', 'kill']) {
    const { ask, controller } = chaosApp({ config: { faults: [failing('a')] } })
    controller.arm('me', 'a test')
    const headers = { authorization: `Bearer ${TOKEN}`, 'if-match': '"stale"' }
    assert.equal((await ask('POST', `/admin/chaos/${stop}`, {}, { headers })).status, 200)
    assert.notEqual(controller.status().state, 'armed')
  }
})

test('a plan that is wrong is refused with all that is wrong, and the old one goes on', async () => {
  const { ask } = chaosApp({ config: { faults: [failing('old')] } })
  const wrong = { faults: [failing('a', { rate: 2 }), failing('b', { type: 'rpc.eror' })] }
  const { status, body } = await ask('PUT', '/admin/chaos', wrong)
  assert.equal(status, 400)
  assert.equal(body.error, 'the plan cannot be used')
  assert.deepEqual(body.findings, [
    { path: 'faults[0].rate', message: 'expected a number from 0 to 1, found 2' },
    { path: 'faults[1].type', message: 'unknown type "rpc.eror"; did you mean rpc.error?' },
  ])
  assert.equal((await ask('GET', '/admin/chaos')).body.faults[0].name, 'old')
})

test('only what belongs to a plan can be put, and a plan has faults', async () => {
  const { ask } = chaosApp()
  const locked = await ask('PUT', '/admin/chaos', { enabled: true, faults: [] })
  assert.deepEqual([locked.status, locked.body.findings[0].path], [400, 'enabled'])
  const bare = await ask('PUT', '/admin/chaos', { seed: 1 })
  assert.deepEqual(bare.body.findings, [{ path: 'faults', message: 'missing; expected a list of faults' }])
  const list = await ask('PUT', '/admin/chaos', [])
  assert.equal(list.status, 400)
  const foreign = await ask('PUT', '/admin/chaos', { faults: [{ type: 'latency', added: 1 }] })
  assert.match(
    String(foreign.body.findings[0].message),
    /unknown field "added" of latency; did you mean added_ms/,
  )
  const broken = await ask('PUT', '/admin/chaos', '{', { headers: { 'content-type': 'application/json' } })
  assert.deepEqual([broken.status, typeof broken.body.error], [400, 'string'])
})

test('a plan that aims at no server there is, or cannot work with it, is refused', async () => {
  const targets = () => ({
    servers: [{ name: 'pipe', kind: { transport: 'stdio' as const, era: undefined } }],
    arms: ['canary/treatment'],
  })
  const { ask } = chaosApp({ targets })
  const put = (fault: object) => ask('PUT', '/admin/chaos', { faults: [fault] })
  const nowhere = await put(failing('a', { match: { server: 'serch' } }))
  assert.deepEqual(nowhere.body.findings, [
    { path: 'faults[0].match.server', message: '"serch" matches no server' },
  ])
  const unarmed = await put(failing('a', { match: { arm: 'other' } }))
  assert.deepEqual(unarmed.body.findings, [
    {
      path: 'faults[0].match.arm',
      message: '"other" matches no arm of an experiment: there are canary/treatment',
    },
  ])
  assert.equal((await put(failing('a', { type: 'http.status' }))).status, 400)
})

test('production refuses to arm and says why, whatever is put', async () => {
  const { ask } = chaosApp({ environment: 'production' })
  await ask('PUT', '/admin/chaos', { faults: [failing('a')] })
  const { status, body } = await ask('POST', '/admin/chaos/arm', {})
  assert.equal(status, 409)
  assert.equal(body.error, 'refused: gateway.environment is "production", which counts as production')
  assert.equal((await ask('GET', '/admin/chaos')).body.refusal, body.error)
})

test('after a kill nothing can be armed until it is lifted, and lifting arms nothing', async () => {
  const { ask, controller } = chaosApp({ config: { faults: [failing('a')] } })
  controller.arm('me', 'a test')
  const killed = await ask('POST', '/admin/chaos/kill', { by: 'me', why: 'it hurts' })
  assert.deepEqual(killed.body, {
    state: 'killed',
    by: 'me',
    why: 'it hurts',
    at: Date.UTC(2026, 0, 1),
    tookMs: 0,
  })
  assert.equal(controller.status().state, 'killed')
  assert.equal((await ask('POST', '/admin/chaos/arm')).status, 409)
  assert.equal((await ask('POST', '/admin/chaos/unkill')).body.state, 'disarmed')
  assert.equal((await ask('POST', '/admin/chaos/arm')).body.state, 'armed')
})

test('stopping works whatever is wrong with the request', async () => {
  for (const stop of ['kill', 'disarm']) {
    for (const [type, payload] of [
      ['application/json', ''],
      ['application/json', '{'],
      ['text/plain', 'please'],
      ['application/json', '[1]'],
      ['application/json', 'x'.repeat(2_000_000)],
    ] as const) {
      const { ask, controller } = chaosApp({ config: { faults: [failing('a')] } })
      controller.arm('me', 'a test')
      await ask('POST', `/admin/chaos/${stop}`, undefined, { headers: { 'content-type': type }, payload })
      assert.equal(controller.status().state, stop === 'kill' ? 'killed' : 'disarmed', `${stop} ${payload}`)
    }
  }
})

test('a kill is answered even when the engine cannot report its state', async () => {
  const { ask, controller } = chaosApp()
  controller.status = () => {
    throw new Error('broken')
  }
  assert.equal((await ask('POST', '/admin/chaos/kill')).status, 200)
  assert.equal(controller.killSwitch.on, true)
})

test('a lease is renewed while something is armed', async () => {
  const { ask, controller, clock } = chaosApp({ config: { lease: '10s', faults: [failing('a')] } })
  const early = await ask('POST', '/admin/chaos/renew')
  assert.deepEqual([early.status, early.body], [409, { error: 'nothing is armed' }])
  controller.arm('me', 'a test')
  await clock.advance(9_000)
  assert.equal((await ask('POST', '/admin/chaos/renew', { by: 'me' })).body.leaseRemainingMs, 10_000)
})

test('a request to start that cannot be read starts nothing', async () => {
  const { ask, controller } = chaosApp({ config: { faults: [failing('a')] } })
  const { status, body } = await ask('POST', '/admin/chaos/arm', { bye: 'me' })
  assert.deepEqual([status, body.error], [400, 'the body cannot be used'])
  assert.deepEqual(body.findings, [{ path: 'bye', message: 'unknown key "bye"; did you mean "by"?' }])
  assert.equal(controller.status().state, 'disarmed')
})
