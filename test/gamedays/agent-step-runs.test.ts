import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Agent } from '../../src/approval/agent.ts'
import { refusal, type Refusal } from '../../src/approval/refusal.ts'
import type { Proposal } from '../../src/approval/proposals.ts'
import type { RunRecord } from '../../src/experiments/guarded/record.ts'
import { AgentStepRuns, type KnownAgents } from '../../src/gamedays/agent-step-runs.ts'
import { GameDay } from '../../src/gamedays/gameday.ts'
import type { GameDayPlan } from '../../src/gamedays/plan.ts'
import type { GameDayRecord } from '../../src/gamedays/record.ts'
import { gameDayPlanSchema } from '../../src/gateway/gamedays.ts'
import { ManualClock } from '../support/manual-clock.ts'

const spec = (name: string) => ({
  name,
  owner: 'tests',
  reason: 'to see',
  hypothesis: { steadyState: ['error_ratio < 1%'] },
  targets: { server: 'flaky' },
  faults: [{ name: 'broken', type: 'rpc.error', rate: 1 }],
  stages: [{ share: '25%', duration: '1s' }],
  gate: { rollbackOn: [{ metric: 'error_ratio', above: '10%' }] },
})

const plan: GameDayPlan = gameDayPlanSchema.parse({
  name: 'friday',
  title: 'A title',
  roles: { lead: 'alice' },
  hypothesis: 'Agents cope.',
  scope: { servers: ['flaky'] },
  experiments: [{ spec: spec('first') }],
})

const blank: GameDayRecord = {
  format: 1,
  id: 'gd-1-00000000',
  plan,
  isComplete: true,
  version: '0',
  environment: 'staging',
  by: 'writer',
  isOfAgent: true,
  state: 'running',
  reason: 'it runs',
  startedAt: 0,
  endedAt: undefined,
  steps: [{ name: 'first', state: 'planned', runs: [], note: '', beganAt: undefined, result: undefined }],
  pauses: [],
  observations: [],
  actions: [],
  events: [],
}

/** Proposals and starts in place of a gateway's, with the rules that the GameDay depends on. */
class Approvals {
  /** Calls of `propose`. */
  asked = 0
  readonly proposed: string[] = []
  readonly started: string[] = []
  readonly #open = new Map<string, Proposal>()
  agent: Agent | undefined = { name: 'writer', mayWrite: true }
  refusals: readonly string[] = []
  servers = ['flaky']
  isBusy = false
  /** The next answers of `propose` and `start`; undefined: success. */
  refused: Refusal | undefined
  startRefused: Refusal | undefined

  readonly known = (): KnownAgents => ({
    agentOf: () => this.agent,
    agentRuns: {
      command: (words: string) => `npx ${words}`,
      proposals: {
        propose: () => {
          this.asked++
          return Promise.resolve(this.refused ?? { ok: true, proposal: this.#propose() })
        },
        refusalsOf: () => this.refusals,
        get: (id: string) => this.#open.get(id),
      },
      starts: {
        start: (_: Agent, id: string) => {
          this.started.push(id)
          const run = { id: 'r-1', name: 'first', state: 'running', reason: '' } as RunRecord
          return Promise.resolve(this.startRefused ?? { ok: true, run })
        },
      },
    } as unknown as KnownAgents['agentRuns'],
  })

  #propose(): Proposal {
    const known = [...this.#open.values()].at(-1)
    if (known !== undefined) return known
    const id = `p-${this.proposed.length + 1}`
    this.proposed.push(id)
    const targets = { servers: this.servers.map((name) => ({ name, tools: [] })) }
    const proposal = { id, by: 'writer', plan: { targets } } as unknown as Proposal
    this.#open.set(id, proposal)
    return proposal
  }

  approve(): void {
    for (const proposal of this.#open.values()) proposal.approval = {} as Proposal['approval']
  }

  expire(): void {
    this.#open.clear()
  }
}

function scene() {
  const clock = new ManualClock()
  const approvals = new Approvals()
  let writes = 0
  const runs = new AgentStepRuns({
    clock,
    agents: approvals.known,
    plan,
    by: 'writer',
    guarded: {
      get: () => undefined,
      stop: () => ({ ok: true }),
      get isBusy() {
        return approvals.isBusy
      },
    },
    outside: ({ targets }) =>
      targets.servers.flatMap(({ name }) => (name === 'flaky' ? [] : [`${name} is outside`])),
  })
  const day = new GameDay(
    { clock, runs, plan, stopReason: () => undefined, onChange: () => void writes++ },
    blank,
  )
  return { clock, approvals, day, step: () => day.record.steps[0]!, writes: () => writes }
}

test('an approved experiment begins within two seconds, and a wait starts nothing and writes nothing', async () => {
  const { clock, approvals, day, step, writes } = scene()
  day.begin()
  await clock.advance(0)
  assert.deepEqual(
    [step().state, step().note],
    [
      'waits for approval',
      `proposal p-1 needs a person's approval: npx breakwater proposal approve p-1 --key FILE`,
    ],
  )
  const before = writes()
  await clock.advance(3_600_000)
  assert.deepEqual([writes(), approvals.started, approvals.proposed], [before, [], ['p-1']])
  // A look at everything takes milliseconds with many tools, so it comes every 15 seconds.
  assert.equal(approvals.asked, 1 + 3_600 / 15)
  approvals.approve()
  await clock.advance(2_000)
  assert.deepEqual([step().state, step().runs, approvals.started], ['running', ['r-1'], ['p-1']])
})

test('an expired proposal is proposed again, and the note names the new one', async () => {
  const { clock, approvals, day, step } = scene()
  day.begin()
  await clock.advance(1_000)
  approvals.expire()
  await clock.advance(2_000)
  assert.match(step().note, /proposal approve p-2/)
  assert.equal(step().state, 'waits for approval')
})

test('a pause ends the wait, and an approval during the pause begins nothing before the resume', async () => {
  const { clock, approvals, day, step } = scene()
  day.begin()
  await clock.advance(1_000)
  assert.equal(day.pause('alice', 'lunch').ok, true)
  approvals.approve()
  await clock.advance(60_000)
  assert.deepEqual([step().state, approvals.started], ['planned', []])
  assert.equal(day.resume('alice').ok, true)
  await clock.advance(1_000)
  assert.equal(step().state, 'running')
})

test('an approved experiment waits for another run, and asks for no start meanwhile', async () => {
  const { clock, approvals, day, step } = scene()
  day.begin()
  await clock.advance(1_000)
  approvals.isBusy = true
  approvals.refusals = ['experiment "other" is running']
  approvals.approve()
  await clock.advance(10_000)
  assert.deepEqual([step().state, approvals.started], ['waiting', []])
  approvals.isBusy = false
  approvals.refusals = []
  await clock.advance(3_000)
  assert.deepEqual([step().state, approvals.started], ['running', ['p-1']])
})

test('a server that is down for a moment does not end the wait for a person', async () => {
  const { clock, approvals, day, step } = scene()
  day.begin()
  await clock.advance(1_000)
  approvals.refusals = ['the server flaky is down']
  await clock.advance(60_000)
  assert.deepEqual([day.record.state, step().state], ['running', 'waits for approval'])
  approvals.approve()
  await clock.advance(2_000)
  assert.deepEqual([day.record.state, approvals.started], ['paused', []])
})

for (const [what, spoil, told] of [
  ['without its agent', (one: Approvals) => (one.agent = undefined), /no token of the agent writer/],
  ['outside of the scope', (one: Approvals) => (one.servers = ['other']), /other is outside/],
  ['that cannot run', (one: Approvals) => (one.refusals = ['it is protected']), /it is protected/],
  [
    'that no agent may propose',
    (one: Approvals) => (one.refused = refusal('invalid', 'it has secrets')),
    /it has secrets/,
  ],
] as const)
  test(`an experiment ${what} pauses the GameDay, and nothing starts`, async () => {
    const { clock, approvals, day } = scene()
    spoil(approvals)
    approvals.approve()
    day.begin()
    await clock.advance(1_000)
    assert.equal(day.record.state, 'paused')
    assert.match(day.record.reason, told)
    assert.deepEqual(approvals.started, [])
  })

test('a refused start pauses the GameDay, with the reason and the help', async () => {
  const { clock, approvals, day } = scene()
  approvals.startRefused = refusal('killed', 'the kill switch is on', { see: 'breakwater chaos lift' })
  day.begin()
  await clock.advance(1_000)
  approvals.approve()
  await clock.advance(2_000)
  assert.match(day.record.reason, /the kill switch is on; breakwater chaos lift/)
  assert.equal(approvals.started.length, 1)
})
