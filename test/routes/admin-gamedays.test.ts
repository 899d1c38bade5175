import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import Fastify, { type InjectOptions } from 'fastify'
import { withoutSecrets } from '../../src/chaos/plan/schema.ts'
import { demandToken } from '../../src/downstream/http/server.ts'
import { GameDays } from '../../src/gamedays/gamedays.ts'
import { gameDayPlanSchema } from '../../src/gateway/gamedays.ts'
import { registerAdminGameDays } from '../../src/routes/admin-gamedays.ts'
import { recordOf } from '../experiments/guarded/world.ts'
import { written } from '../gamedays/days.ts'
import { ManualClock } from '../support/manual-clock.ts'

const TOKEN = 'sixteen-letters-or-more'

interface Answer {
  readonly status: number
  readonly text: string
  readonly body: Record<string, unknown>
}

/** The routes of GameDays over runs that only begin. */
function scene(t: TestContext, { openToRead = true } = {}) {
  const clock = new ManualClock()
  const stored: string[] = []
  let runs = 0
  const gameDays = new GameDays({
    clock,
    environment: 'staging',
    store: {
      write: (record) => Promise.resolve(void stored.push(JSON.stringify(record))),
      flush: () => Promise.resolve(),
    },
    runsOf: () => ({
      begin: (spec) => Promise.resolve({ ok: true, run: recordOf(spec, { id: `run-${++runs}` }) }),
      stop: () => undefined,
      get: () => undefined,
    }),
    refusals: () => [],
    withoutSecrets,
    incidents: () => [],
    refresh: () => undefined,
    onState: () => undefined,
    onProblem: () => undefined,
  })
  const guarded = {
    plan: ({ name }: { name: string }) => ({ name, refusals: [], targets: { servers: [] } }) as never,
    get: () => undefined,
    needsSignature: false,
  }
  const app = Fastify()
  demandToken(app, { token: TOKEN, openToRead })
  registerAdminGameDays(app, { gameDays, guarded, plan: gameDayPlanSchema })
  t.after(() => app.close())
  async function ask(method: 'GET' | 'POST', url: string, body?: unknown, more: InjectOptions = {}) {
    const headers = { authorization: `Bearer ${TOKEN}`, ...more.headers }
    const payload = body === undefined ? {} : { payload: body as object }
    const { statusCode, body: text } = await app.inject({ method, url, ...payload, ...more, headers })
    return { status: statusCode, text, body: JSON.parse(text) as Answer['body'] }
  }
  const start = (more: object = {}) => ask('POST', '/admin/gamedays', { plan: written(more), by: 'ops' })
  return { ask, start, clock, gameDays, stored }
}

const none = { headers: { authorization: 'none' } }

const orders = ['pause', 'resume', 'skip', 'stop', 'observations', 'actions', 'actions/1/done']

test('changes of GameDays need the token, and so do reads when the config sets a token', async (t) => {
  const { ask, start } = scene(t)
  assert.equal((await start()).status, 202)
  for (const path of ['', '/plan', ...orders.map((order) => `/day/${order}`)])
    assert.equal((await ask('POST', `/admin/gamedays${path}`, {}, none)).status, 401, path)
  for (const path of ['', '/day'])
    assert.equal((await ask('GET', `/admin/gamedays${path}`, undefined, none)).status, 200, path)
  const locked = scene(t, { openToRead: false })
  await locked.start()
  for (const path of ['', '/day'])
    assert.equal((await locked.ask('GET', `/admin/gamedays${path}`, undefined, none)).status, 401, path)
})

test('a GameDay begins with 202, and another one is refused with 409', async (t) => {
  const { ask, start } = scene(t)
  const started = await start()
  assert.equal(started.status, 202)
  assert.match(String(started.body.id), /^gd-[a-z0-9]+-[0-9a-f]{8}$/)
  const again = await start({ name: 'other' })
  assert.equal(again.status, 409)
  assert.match(again.text, /the GameDay \\"day\\" is running: only one is under way at a time/)
  const planned = await ask('POST', '/admin/gamedays/plan', { plan: written({ name: 'other' }) })
  assert.equal(planned.status, 200)
  assert.equal((planned.body.refusals as string[]).length, 1)
  assert.deepEqual(
    (planned.body.experiments as { name: string; after: number }[]).map(({ name, after }) => [name, after]),
    [
      ['one', 0],
      ['two', 60_000],
      ['three', 0],
    ],
  )
})

test('a body that is no GameDay is refused with the path of each finding', async (t) => {
  const { ask, gameDays } = scene(t)
  const bad: readonly (readonly [unknown, RegExp])[] = [
    [undefined, /"path":"plan"/],
    [{}, /"path":"plan"/],
    [[], /expected|cannot be used/],
    ['"text"', /cannot be used|expected|not valid JSON/],
    [{ plan: written(), by: 'a\nb' }, /expected one line without control characters/],
    [{ plan: written(), by: 'x'.repeat(129) }, /"path":"by"/],
    [{ plan: written(), approvedBy: 'boss' }, /approvedBy/],
    [{ plan: written({ name: '../etc/passwd' }) }, /"path":"plan.name"/],
    [{ plan: written({ name: 'x'.repeat(41) }) }, /"path":"plan.name"/],
    [{ plan: written({ title: 'a\u001b[2J' }) }, /"path":"plan.title"/],
    [{ plan: written({ title: 'a\u202eb' }) }, /"path":"plan.title"/],
    [{ plan: written({ roles: { lead: 'x', ['__proto__']: 'y' } }) }, /plan\.roles|not valid JSON/],
    [{ plan: written({ roles: { observer: 'x' } }) }, /expected a lead/],
    [{ plan: written({ scope: { servers: [] } }) }, /"path":"plan.scope.servers"/],
    [{ plan: written({ experiments: [] }) }, /"path":"plan.experiments"/],
    [
      { plan: written({ experiments: Array.from({ length: 33 }, () => written().experiments[0]) }) },
      /"path":"plan.experiments"/,
    ],
    [{ plan: written({ experiments: [{ file: '/etc/passwd' }] }) }, /plan\.experiments\[0\]/],
    [{ plan: written({ stop: { neighbours: [{ metric: 'error_ratio', above: '100%' }] } }) }, /above/],
  ]
  for (const [body, why] of bad) {
    const headers = { 'content-type': 'application/json' }
    const payload = typeof body === 'string' ? body : JSON.stringify(body)
    const answer = await ask('POST', '/admin/gamedays', undefined, {
      ...(body === undefined ? {} : { payload, headers }),
    })
    assert.equal(answer.status, 400, answer.text)
    assert.match(answer.text, why)
  }
  assert.deepEqual(gameDays.list(), [])
})

test('there is no GameDay with an odd id, and the answer is short', async (t) => {
  const { ask, start } = scene(t)
  await start()
  const odd = [
    '__proto__',
    'constructor',
    'toString',
    'hasOwnProperty',
    '..%2f..%2fetc%2fpasswd',
    '%00',
    '%1b%5b2J',
    'gd-1-00000000',
    '%20day',
    'DAY',
    'x'.repeat(90),
  ]
  for (const id of odd) {
    const answers = [await ask('GET', `/admin/gamedays/${id}`)]
    for (const order of orders) {
      const body =
        order === 'actions' ? { what: 'w', owner: 'o' } : order === 'observations' ? { text: 't' } : {}
      answers.push(await ask('POST', `/admin/gamedays/${id}/${order}`, body))
    }
    for (const { status, text } of answers) {
      assert.equal(status, 404, `${id}: ${text}`)
      assert.ok(text.length < 200, text)
    }
  }
})

test('orders that make no sense now are refused with 409 and the reason', async (t) => {
  const { ask, start } = scene(t)
  await start()
  const at = (order: string, body: object = {}) => ask('POST', `/admin/gamedays/day/${order}`, body)
  assert.deepEqual(await at('resume').then(({ status, body }) => [status, body.error]), [
    409,
    'the GameDay is running, so it cannot be resumed',
  ])
  assert.equal((await at('pause', { by: 'ops', why: 'lunch' })).body.state, 'paused')
  assert.equal((await at('pause')).status, 409)
  assert.equal((await at('stop')).body.state, 'stopped')
  for (const order of ['pause', 'resume', 'skip', 'stop']) assert.equal((await at(order)).status, 409)
  assert.equal((await at('observations', { text: 'afterwards' })).status, 200)
  assert.equal((await at('actions', { what: 'tune', owner: 'team', due: '2026-12-24' })).status, 200)
  assert.equal((await at('actions/1/done')).status, 200)
  assert.equal((await at('actions/1/done')).status, 409)
})

test('texts of orders have limits, and are one line', async (t) => {
  const { ask, start } = scene(t)
  await start()
  const bad: readonly (readonly [string, object])[] = [
    ['pause', { why: 'x'.repeat(501) }],
    ['pause', { why: 'a\u0007b' }],
    ['pause', { why: '  ' }],
    ['pause', { reason: 'x' }],
    ['observations', {}],
    ['observations', { text: 'x'.repeat(1_001) }],
    ['observations', { text: 'a\nb' }],
    ['observations', { text: 7 }],
    ['actions', { what: 'x' }],
    ['actions', { what: 'x'.repeat(501), owner: 'o' }],
    ['actions', { what: 'x', owner: 'x'.repeat(201) }],
    ['actions', { what: 'x', owner: 'o', due: '2026-02-30' }],
    ['actions', { what: 'x', owner: 'o', due: 'tomorrow' }],
    ['actions/1/done', { by: '' }],
  ]
  for (const [order, body] of bad) {
    const { status, text } = await ask('POST', `/admin/gamedays/day/${order}`, body)
    assert.equal(status, 400, `${order} ${text}`)
    assert.ok(text.length < 1_000, text)
  }
})

test('an action has a number of digits only', async (t) => {
  const { ask, start } = scene(t)
  await start()
  await ask('POST', '/admin/gamedays/day/actions', { what: 'tune', owner: 'team' })
  for (const number of ['0x1', '1e0', '%201', '01', '1.0', '+1', 'NaN', '-1', '0', '1'.repeat(80)])
    assert.equal((await ask('POST', `/admin/gamedays/day/actions/${number}/done`, {})).status, 404, number)
  assert.equal((await ask('POST', '/admin/gamedays/day/actions/2/done', {})).status, 409)
  assert.equal((await ask('POST', '/admin/gamedays/day/actions/1/done', {})).status, 200)
})

test('header values of faults are in no answer and no record', async (t) => {
  const { ask, start, stored } = scene(t)
  const [first] = written().experiments
  const faults = [
    { name: 'a', type: 'rpc.error', rate: 1, match: { header: { 'x-key': 'hunter2' } } },
    { name: 'b', type: 'http.status', rate: 1, status: 503, headers: { 'x-api-key': 'hunter3' } },
  ]
  const experiments = [{ ...first, spec: { ...first!.spec, faults } }]
  const answers = [
    await start({ experiments }),
    await ask('POST', '/admin/gamedays/plan', { plan: written({ experiments, name: 'other' }) }),
    await ask('GET', '/admin/gamedays'),
    await ask('GET', '/admin/gamedays/day'),
    await ask('POST', '/admin/gamedays/day/pause', {}),
  ]
  assert.equal(answers[0]!.status, 202, answers[0]!.text)
  assert.doesNotMatch(JSON.stringify([answers, stored]), /hunter/)
})
