import assert from 'node:assert/strict'
import { test } from 'node:test'
import Fastify from 'fastify'
import { demandToken } from '../../src/downstream/http/server.ts'
import { type HandedIn, type HandIn, MOST_BYTES, receivedRun } from '../../src/evidence/hand-in.ts'
import { registerAdminRuns } from '../../src/routes/admin-runs.ts'
import { BEGAN_AT, claimOf, scenarioOf } from '../evidence/documents.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { TOKEN } from './chaos-app.ts'

/** The route over an index that takes each document, unless `answer` says otherwise. */
function app({ answer, hasIndex = true }: { answer?: HandedIn; hasIndex?: boolean } = {}) {
  const clock = new ManualClock()
  const taken: { readonly document: HandIn; readonly by: string }[] = []
  const index = {
    async handIn(document: HandIn, by: string): Promise<HandedIn> {
      taken.push({ document, by })
      const receiver = { gateway: null, bootId: 'boot', by, now: BEGAN_AT }
      return answer ?? { ok: true, isNew: true, run: receivedRun(document, receiver) }
    },
  }
  const server = Fastify()
  demandToken(server, { token: TOKEN, openToRead: true })
  registerAdminRuns(server, { clock, index: hasIndex ? index : undefined })
  async function post(
    payload: unknown,
    headers: Record<string, string> = { authorization: `Bearer ${TOKEN}` },
  ) {
    const response = await server.inject({
      method: 'POST',
      url: '/admin/runs',
      payload: payload as object,
      headers,
    })
    return {
      status: response.statusCode,
      body: response.json<Record<string, unknown>>(),
      headers: response.headers,
    }
  }
  return { clock, taken, post }
}

test('a handed-in run is judged, and its credential is the control token', async () => {
  const { post, taken } = app()
  const { status, body } = await post(scenarioOf())
  assert.deepEqual([status, body], [201, { id: 'scenario-one', verdict: 'passed', reasons: [] }])
  assert.deepEqual(
    taken.map(({ by }) => by),
    ['control token'],
  )
  const failed = await post(scenarioOf({ claims: [claimOf({ status: 'failed' })] }))
  assert.equal(failed.body.verdict, 'failed')
})

test('nobody hands in a run without the control token', async () => {
  const { post, taken } = app()
  for (const headers of [{}, { authorization: 'Bearer wrong' }] as Record<string, string>[]) {
    const { status, headers: answer } = await post(scenarioOf(), headers)
    assert.deepEqual([status, answer['www-authenticate']], [401, 'Bearer'])
  }
  assert.equal(taken.length, 0)
})

test('a body that is no document is refused, with the place of each problem', async () => {
  const { post, taken } = app()
  const findings = async (payload: unknown) => {
    const { status, body } = await post(payload)
    assert.equal(status, 400, JSON.stringify(body))
    return (body.findings as { path: string }[]).map(({ path }) => path)
  }
  assert.ok((await findings({})).includes('id'))
  assert.deepEqual(await findings({ ...scenarioOf(), verdict: 'passed' }), ['verdict'])
  assert.deepEqual(await findings({ ...scenarioOf(), by: 'the boss' }), ['by'])
  assert.deepEqual(await findings({ ...scenarioOf(), kind: 'guarded' }), ['kind'])
  assert.deepEqual(await findings({ ...scenarioOf(), id: 'mx3q4cgo-1dea0915' }), ['id'])
  assert.deepEqual(await findings({ ...scenarioOf(), at: 'yesterday' }), ['at'])
  assert.deepEqual(await findings({ ...scenarioOf(), tookMs: -1 }), ['tookMs'])
  assert.deepEqual(await findings([scenarioOf()]), [''])
  assert.equal(taken.length, 0)
})

test('refusals of the index have a status each', async () => {
  for (const [code, status] of [
    ['implausible', 400],
    ['taken', 409],
    ['full', 507],
    ['unwritten', 503],
  ] as const) {
    const { post } = app({ answer: { ok: false, code, message: 'why' } })
    const answered = await post(scenarioOf())
    assert.deepEqual([answered.status, answered.body], [status, { error: 'why' }])
  }
  const { post } = app({ hasIndex: false })
  const none = await post(scenarioOf())
  assert.equal(none.status, 503)
  assert.match(String(none.body.error), /needs gateway\.stateDir/)
})

test('a repeated document is no new run', async () => {
  const run = receivedRun(scenarioOf(), { gateway: null, bootId: null, by: 'x', now: BEGAN_AT })
  const { post } = app({ answer: { ok: true, isNew: false, run } })
  assert.equal((await post(scenarioOf())).status, 200)
})

test('a document of more than 64 KiB is refused', async () => {
  const { post, taken } = app()
  const long = Array.from({ length: 40 }, (_, at) => claimOf({ text: `${at} ${'x'.repeat(1_900)}` }))
  const { status, body } = await post(scenarioOf({ claims: long }))
  assert.equal(status, 413)
  assert.match(String(body.error), new RegExp(`at most ${MOST_BYTES} are taken`))
  assert.equal(taken.length, 0)
})

test('clients hand in at most sixty runs a minute, malformed ones included', async () => {
  const { post, clock, taken } = app()
  for (let n = 0; n < 30; n++) assert.equal((await post({})).status, 400)
  await clock.advance(30_000)
  for (let n = 0; n < 30; n++) assert.equal((await post(scenarioOf())).status, 201)
  const { status, headers, body } = await post(scenarioOf())
  assert.deepEqual([status, headers['retry-after']], [429, '30'])
  assert.match(String(body.error), /at most 60 runs a minute: try again in 30 s/)
  await clock.advance(29_999)
  assert.equal((await post(scenarioOf())).status, 429)
  await clock.advance(1)
  assert.equal((await post(scenarioOf())).status, 201)
  assert.equal(taken.length, 31)
})
