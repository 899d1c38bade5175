import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Agent } from '../../../src/approval/agent.ts'
import { AgentGameDays, type Order } from '../../../src/control/mcp/agent-gamedays.ts'
import type { StepRuns } from '../../../src/gamedays/gameday.ts'
import { GameDays } from '../../../src/gamedays/gamedays.ts'
import { gameDayPlanSchema } from '../../../src/gateway/gamedays.ts'
import { ManualClock } from '../../support/manual-clock.ts'

const planOf = (name: string) =>
  gameDayPlanSchema.parse({
    name,
    title: 'A title',
    roles: { lead: 'alice' },
    hypothesis: 'Agents cope.',
    scope: { servers: ['flaky'] },
    experiments: [
      {
        spec: {
          name: 'first',
          owner: 'tests',
          reason: 'to see',
          hypothesis: { steadyState: ['error_ratio < 1%'] },
          targets: { server: 'flaky' },
          faults: [{ name: 'broken', type: 'rpc.error', rate: 1 }],
          stages: [{ share: '25%', duration: '1s' }],
          gate: { rollbackOn: [{ metric: 'error_ratio', above: '10%' }] },
        },
      },
    ],
  })

const writer: Agent = { name: 'writer', mayWrite: true }
const other: Agent = { name: 'other', mayWrite: true }
const reader: Agent = { name: 'reader', mayWrite: false }

/** Runs that wait for a person for good. */
const waiting: StepRuns = {
  begin: () => Promise.resolve({ ok: false, waits: { note: 'somebody must approve', isReady: () => false } }),
  stop: () => undefined,
  get: () => undefined,
}

function scene() {
  const clock = new ManualClock()
  const gameDays = new GameDays({
    clock,
    environment: 'staging',
    store: { write: () => Promise.resolve(), flush: () => Promise.resolve() },
    runsOf: () => waiting,
    refusals: () => [],
    withoutSecrets: (plan) => plan,
    incidents: () => [],
    refresh: () => undefined,
    onState: () => undefined,
    onProblem: () => undefined,
  })
  const agents = new AgentGameDays(gameDays, clock, ['writer', 'other', 'reader'])
  const codeOf = (agent: Agent, order: Order) => {
    const done = agents.change(agent, undefined, order)
    return done.ok ? done.gameDay.state : done.code
  }
  return { clock, gameDays, agents, codeOf }
}

const observe: Order = { action: 'observe', text: 'so' }
const add: Order = { action: 'add_action', what: 'mend', owner: 'ops' }

test('an agent writes 100 observations and 40 actions, and all agents leave room for persons', async () => {
  const { agents, gameDays, codeOf } = scene()
  await agents.start(writer, planOf('friday'), 'k')
  for (let at = 0; at < 100; at++) assert.equal(codeOf(writer, observe), 'running')
  assert.equal(codeOf(writer, observe), 'busy')
  for (let at = 0; at < 40; at++) assert.equal(codeOf(writer, add), 'running')
  assert.equal(codeOf(writer, add), 'busy')
  assert.equal(codeOf(other, observe), 'running')
  const { id } = agents.current!
  assert.equal(gameDays.change(id, (day) => day.observe('alice', 'seen')).ok, true)
  const names = Array.from({ length: 32 }, (_, at) => `agent-${at}`)
  const many = new AgentGameDays(gameDays, new ManualClock(), names)
  let written = 0
  for (const name of names)
    for (let at = 0; at < 101; at++) if (many.change({ name, mayWrite: true }, id, observe).ok) written++
  assert.equal(written, 300)
  assert.equal(gameDays.change(id, (day) => day.observe('alice', 'still')).ok, true)
})

test('only its agent resumes and skips, and not after the pause of somebody else', async () => {
  const { agents, gameDays, codeOf } = scene()
  await agents.start(writer, planOf('friday'), 'k')
  const pause: Order = { action: 'pause', why: 'enough' }
  const resume: Order = { action: 'resume' }
  const skip: Order = { action: 'skip', why: 'later' }
  assert.deepEqual([codeOf(other, skip), codeOf(reader, skip)], ['not_allowed', 'not_allowed'])
  assert.equal(codeOf(writer, pause), 'paused')
  assert.deepEqual([codeOf(other, resume), codeOf(reader, resume)], ['not_allowed', 'not_allowed'])
  assert.equal(codeOf(writer, resume), 'running')
  for (const pauser of [reader, other]) {
    assert.equal(codeOf(pauser, pause), 'paused')
    assert.deepEqual([codeOf(writer, resume), codeOf(writer, skip)], ['not_allowed', 'not_allowed'])
    assert.equal(gameDays.change(agents.current!.id, (day) => day.resume('alice')).ok, true)
  }
  assert.equal(gameDays.change(agents.current!.id, (day) => day.pause('alice', 'lunch')).ok, true)
  assert.equal(codeOf(writer, resume), 'not_allowed')
  assert.equal(codeOf(reader, { action: 'stop', why: 'enough' }), 'stopped')
})

test('an agent resumes 30 times within an hour', async () => {
  const { agents, codeOf } = scene()
  await agents.start(writer, planOf('friday'), 'k')
  const turn = () => [codeOf(writer, { action: 'pause', why: 'so' }), codeOf(writer, { action: 'resume' })]
  for (let at = 0; at < 30; at++) assert.deepEqual(turn(), ['paused', 'running'])
  assert.deepEqual(turn(), ['paused', 'busy'])
})

test("no agent steers a person's GameDay, except by pause and stop", async () => {
  const { agents, gameDays, codeOf } = scene()
  await gameDays.start(planOf('friday'), { by: 'writer', isOfAgent: false })
  assert.equal(codeOf(writer, { action: 'skip', why: 'so' }), 'not_allowed')
  assert.equal(codeOf(reader, { action: 'pause', why: 'so' }), 'paused')
  assert.equal(codeOf(writer, { action: 'resume' }), 'not_allowed')
  assert.equal(codeOf(writer, observe), 'paused')
  assert.equal(codeOf(reader, observe), 'not_allowed')
  assert.equal(agents.pauseCurrent(reader, 'so'), undefined)
})

test('an agent closes the actions that it added or owns, and no others', async () => {
  const { agents, gameDays, codeOf } = scene()
  await agents.start(writer, planOf('friday'), 'k')
  const { id } = agents.current!
  gameDays.change(id, (day) => day.addAction('alice', { what: 'mend', owner: 'bob' }))
  gameDays.change(id, (day) => day.addAction('alice', { what: 'mend', owner: 'writer' }))
  const close = (number: number): Order => ({ action: 'close_action', number })
  assert.equal(codeOf(other, add), 'running')
  assert.equal(codeOf(writer, close(1)), 'not_allowed')
  assert.equal(codeOf(writer, close(2)), 'running')
  assert.equal(codeOf(writer, close(3)), 'not_allowed')
  assert.equal(codeOf(other, close(3)), 'running')
  assert.equal(codeOf(other, close(4)), 'invalid')
})

test('a key begins one GameDay, and an agent begins 10 within an hour', async () => {
  const { clock, agents } = scene()
  const begin = async (key: string, name = 'friday') => {
    const started = await agents.start(writer, planOf(name), key)
    return started.ok ? started.gameDay.id : started.code
  }
  const first = await begin('k-0')
  assert.equal(await begin('k-0'), first)
  assert.equal(await begin('k-0', 'monday'), 'invalid')
  assert.equal(await begin('k-1'), 'busy')
  const stop = () => agents.change(reader, undefined, { action: 'stop', why: 'enough' })
  stop()
  assert.equal(await begin('k-0'), first)
  const ids = new Set([first])
  for (let at = 1; at < 10; at++) {
    ids.add(await begin(`k-${at}`))
    stop()
  }
  assert.equal(ids.size, 10)
  assert.equal(await begin('k-10'), 'busy')
  await clock.advance(3_600_001)
  assert.match(await begin('k-10'), /^gd-/)
  const refused = await agents.start(reader, planOf('friday'), 'k-11')
  assert.equal(refused.ok ? '' : refused.code, 'not_allowed')
})

test('agents leave half of the state folder to persons', async () => {
  const { agents, gameDays } = scene()
  await gameDays.recover([], 500)
  const started = await agents.start(writer, planOf('friday'), 'k')
  assert.ok(!started.ok)
  assert.match(started.message, /the state folder has 500 GameDays, and agents may fill it up to 500/)
  assert.ok((await gameDays.start(planOf('friday'), { by: 'alice', isOfAgent: false })).ok)
})
