import type { Agent } from '../approval/agent.ts'
import type { AgentRuns } from '../approval/agent-runs.ts'
import type { Proposal, Proposals } from '../approval/proposals.ts'
import type { Refusal } from '../approval/refusal.ts'
import type { GuardedExperiments, Survey } from '../experiments/guarded/guarded.ts'
import type { RunRecord } from '../experiments/guarded/record.ts'
import type { Spec } from '../experiments/guarded/spec.ts'
import type { Clock, Millis } from '../mesh/clock.ts'
import type { Begun, StepRuns } from './gameday.ts'
import type { GameDayPlan } from './plan.ts'
import type { GameDayRecord } from './record.ts'

/** The agents of the control MCP server, and their runs. */
export interface KnownAgents {
  readonly agentRuns: Pick<AgentRuns, 'proposals' | 'starts' | 'command'>
  /** Returns the agent that has a token with this name; undefined when there is none. */
  readonly agentOf: (name: string) => Agent | undefined
}

export interface AgentStepRunsParts {
  readonly clock: Pick<Clock, 'now'>
  readonly guarded: Pick<GuardedExperiments, 'get' | 'stop' | 'isBusy'>
  /** Undefined without the control MCP server. */
  readonly agents: () => KnownAgents | undefined
  readonly plan: Pick<GameDayPlan, 'name' | 'experiments'>
  /** Name of the agent. */
  readonly by: string
  /** Returns the reasons against targets outside of the scope; empty when all are inside. */
  readonly outside: (survey: Pick<Survey, 'targets'>) => readonly string[]
}

/** The agent's key for each start. A proposal begins one run, so the key never stands for two runs. */
const KEY = 'gameday'

/**
 * Time between two looks at everything that a permission depends on, besides an approval: envelopes, targets, and the
 * config. In milliseconds.
 */
const LOOK_MS: Millis = 15_000

/**
 * The runs of a GameDay that an agent began. The GameDay gives no authority: each run is a proposal of the agent, and
 * begins inside a signed envelope or with a person's signed approval, with all checks of `start_run`.
 */
export class AgentStepRuns implements StepRuns {
  readonly #parts: AgentStepRunsParts
  /** Id of the proposal that a person was asked to approve. */
  #asked: string | undefined

  constructor(parts: AgentStepRunsParts) {
    this.#parts = parts
  }

  async begin(spec: Spec): Promise<Begun> {
    const { agents, by, plan, outside, guarded } = this.#parts
    const known = agents()
    const agent = known?.agentOf(by)
    if (known === undefined || agent === undefined)
      return refused([`gateway.controlMcp.tokens has no token of the agent ${by}`])
    const { proposals, starts } = known.agentRuns
    const proposed = await proposals.propose(agent, { spec, firstStage: 0, why: whyOf(plan, spec.name) })
    if (!proposed.ok) return refused([inWords(proposed)], proposed.repeat === 'later')
    const { proposal } = proposed
    const beyond = outside(proposal.plan)
    if (beyond.length > 0) return refused(beyond)
    const isPermitted = proposal.approval !== undefined || proposal.envelope !== undefined
    // A server that is down for a moment does not end the wait for a person.
    if (!isPermitted && this.#asked === proposal.id) return this.#waits(proposal, known.agentRuns)
    const refusals = proposals.refusalsOf(proposal)
    if (refusals.length > 0) return refused(refusals, guarded.isBusy)
    if (!isPermitted) return this.#waits(proposal, known.agentRuns)
    const started = await starts.start(agent, proposal.id, KEY)
    return started.ok
      ? { ok: true, run: started.run }
      : refused([inWords(started)], started.code === 'busy' && started.repeat === 'later')
  }

  stop({ id, name }: Pick<RunRecord, 'id' | 'name'>, by: string, why: string): void {
    const { guarded } = this.#parts
    if (guarded.get(name)?.id === id) guarded.stop(name, by, why)
  }

  get(name: string): RunRecord | undefined {
    return this.#parts.guarded.get(name)
  }

  #waits({ id, refused }: Proposal, { proposals, command }: KnownAgents['agentRuns']): Begun {
    this.#asked = id
    const { clock } = this.#parts
    const lookAt = clock.now() + LOOK_MS
    const why = refused === undefined ? '' : ` (${inWords(refused)})`
    return {
      ok: false,
      waits: {
        note: `proposal ${id} needs a person's approval${why}: ${command(`breakwater proposal approve ${id} --key FILE`)}`,
        isReady() {
          const open = proposals.get(id)
          return open === undefined || open.approval !== undefined || clock.now() >= lookAt
        },
      },
    }
  }
}

/** Returns the open proposal of an agent's GameDay that waits for a person; undefined when none does. */
export function proposalOf(
  { plan, by, isOfAgent, steps }: GameDayRecord,
  proposals: Pick<Proposals, 'list'>,
): Proposal | undefined {
  const step = steps.find(({ state }) => state === 'waits for approval')
  if (!isOfAgent || step === undefined) return undefined
  const why = whyOf(plan, step.name)
  return proposals.list.findLast(
    (one) => one.by === by && one.spec.name === step.name && one.why === why && one.started === undefined,
  )
}

function whyOf({ name, experiments }: AgentStepRunsParts['plan'], step: string): string {
  const number = experiments.findIndex(({ spec }) => spec.name === step) + 1
  return `experiment ${number} of ${experiments.length} of the GameDay ${name}`
}

const refused = (refusals: readonly string[], isBusy = false): Begun => ({ ok: false, refusals, isBusy })

const inWords = ({ message, see }: Refusal): string => (see === undefined ? message : `${message}; ${see}`)
