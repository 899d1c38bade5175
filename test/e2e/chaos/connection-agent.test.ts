import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { until } from '../../support/until.ts'
import { cleanUp } from '../support/gateway.ts'
import { assertSound, playEverywhere, type Scene } from '../support/scene.ts'
import { closeClients } from '../support/sdk-client.ts'
import { everywhere, Stage } from '../support/stage.ts'

const client = { side: 'client' }
/** Longer than an attempt takes that nothing happens to, on a busy machine too; in milliseconds. */
const BRIEF_MS = 1_200
/** Would end every attempt, if it saw the fault. */
const brief = { attemptTimeout: { timeout: BRIEF_MS }, retry: false }

/** Above all policies: the agent meets the fault, and the server is not blamed for it. */
const scenes: readonly Scene[] = [
  {
    title: 'the agent cannot connect, and the server gets nothing',
    tool: 'refused',
    type: 'conn.refused',
    fault: client,
    sees: { message: /^fetch failed$/ },
    runs: 0,
    attempts: {},
    fates: { surfaced: 1 },
  },
  {
    title: "the agent's connection breaks after the tool has run",
    tool: 'reset',
    type: 'conn.reset',
    fault: { ...client, at: { afterBytes: 20 } },
    // That of a stream of events would ask for the rest of it.
    on: ({ name }) => name !== 'http-legacy',
    sees: { message: /^terminated$/ },
    runs: 1,
    attempts: { returned: 1 },
    fates: { surfaced: 1 },
  },
  {
    title: 'the agent waits for a silence that no policy sees',
    tool: 'silent',
    type: 'conn.half_open',
    fault: { ...client, hold: BRIEF_MS + 100 },
    policies: brief,
    runs: 1,
    attempts: { returned: 1 },
    fates: { delayed: 1 },
    takesMs: BRIEF_MS + 100,
  },
  {
    title: 'an agent that gives up on a silence frees its place',
    tool: 'silent_long',
    type: 'conn.half_open',
    fault: { ...client, hold: '60s' },
    sees: { message: /timed out/ },
    runs: 1,
    attempts: { returned: 1 },
    fates: { surfaced: 1 },
    patienceMs: 1_000,
  },
  {
    title: 'the agent waits for a delay that no policy sees',
    tool: 'late',
    type: 'conn.latency',
    fault: { ...client, distribution: { kind: 'fixed', delay: BRIEF_MS + 100 } },
    policies: brief,
    runs: 1,
    attempts: { returned: 1 },
    fates: { delayed: 1 },
    takesMs: BRIEF_MS + 100,
  },
  {
    title: 'the agent gets the reply over a thin wire',
    tool: 'thin',
    type: 'conn.bandwidth',
    fault: { ...client, kibPerSecond: 0.05 },
    policies: brief,
    runs: 1,
    attempts: { returned: 1 },
    fates: { delayed: 1 },
    takesMs: BRIEF_MS + 30,
  },
  {
    title: 'the agent gets the reply in drips',
    tool: 'drip',
    type: 'conn.slow_drip',
    fault: { ...client, chunk: 8, gap: 180 },
    policies: brief,
    runs: 1,
    attempts: { returned: 1 },
    fates: { delayed: 1 },
    takesMs: BRIEF_MS + 120,
  },
]

const flap = { tool: 'flap', type: 'conn.flap', fault: { ...client, up: 1, down: '10m' } }

let stage: Stage

before(async () => {
  stage = await Stage.start([...scenes, flap])
})
after(async () => {
  await closeClients()
  await cleanUp()
})

for (const scene of scenes) {
  test(`${scene.type}: ${scene.title}`, () => playEverywhere(stage, scene))
}

test('conn.flap: the agent gets through at first, and then cannot connect any more', () =>
  everywhere(flap, async (lane) => {
    assert.equal((await stage.call(lane, 'flap')).text, 'flap 1')
    const { message } = await stage.call(lane, 'flap')
    assert.equal(message, 'fetch failed', lane.name)
    assert.deepEqual(await stage.attempts(lane, 'flap'), { returned: 1 })
    assert.deepEqual(await stage.fates(lane, flap), { surfaced: 1 })
  }))

test('no breaker opened over it, and nothing is held', async () => {
  await until('no fault holds a call', async () => {
    const { body } = await stage.gateway.admin<{ faults: { concurrent: number }[] }>('/admin/chaos')
    return body.faults.every(({ concurrent }) => concurrent === 0)
  })
  assert.deepEqual(await stage.gateway.sums('breakwater_breaker_transitions_total', 'state', ''), {})
  await assertSound(stage)
})
