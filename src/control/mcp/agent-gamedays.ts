import { type Agent, readOnly } from '../../approval/agent.ts'
import { HOUR_MS, HourlyLimit } from '../../approval/hourly-limit.ts'
import { type Refusal, refusal } from '../../approval/refusal.ts'
import type { Done } from '../../experiments/experiments.ts'
import type { GameDay } from '../../gamedays/gameday.ts'
import type { GameDays } from '../../gamedays/gamedays.ts'
import type { GameDayPlan } from '../../gamedays/plan.ts'
import { type GameDayRecord, GATEWAY, isGameDayOver } from '../../gamedays/record.ts'
import { MAX_GAME_DAYS } from '../../gamedays/store.ts'
import type { Clock } from '../../mesh/clock.ts'

/** Most GameDays that one agent may begin within an hour. */
const MAX_BEGUN = 10

/** Most times that one agent may resume GameDays within an hour: each pause and resume is a notice to a webhook. */
const MAX_RESUMED = 30

/** Stored GameDays from which on agents begin none. The others are for persons. */
const MAX_FOR_AGENTS = MAX_GAME_DAYS / 2

/** Most observations and actions of one agent in a GameDay, and of all agents together. The others are for persons. */
const MAX_OBSERVATIONS = { each: 100, all: 300 }
const MAX_ACTIONS = { each: 40, all: 120 }

/** An order of an agent to a GameDay. */
export type Order =
  | { readonly action: 'pause' | 'skip' | 'stop'; readonly why: string }
  | { readonly action: 'resume' }
  | { readonly action: 'observe'; readonly text: string }
  | {
      readonly action: 'add_action'
      readonly what: string
      readonly owner: string
      readonly due?: string | undefined
    }
  | { readonly action: 'close_action'; readonly number: number }

type Answered = { readonly ok: true; readonly gameDay: GameDayRecord } | Refusal

/**
 * The GameDays of the gateway, as agents may begin and steer them. Every agent may pause and stop every GameDay, as with
 * runs. Only its agent resumes a GameDay, and not after the pause of somebody else.
 */
export class AgentGameDays {
  readonly #gameDays: GameDays
  readonly #agents: readonly string[]
  readonly #begun: HourlyLimit
  readonly #resumed: HourlyLimit

  /** `agents`: the names of all agents. */
  constructor(gameDays: GameDays, clock: Pick<Clock, 'now'>, agents: readonly string[]) {
    this.#gameDays = gameDays
    this.#agents = agents
    const now = () => clock.now()
    this.#begun = new HourlyLimit(MAX_BEGUN, now)
    this.#resumed = new HourlyLimit(MAX_RESUMED, now)
  }

  /** All GameDays, the oldest first. */
  list(): readonly GameDayRecord[] {
    return this.#gameDays.list()
  }

  /** The GameDay that is running or paused. */
  get current(): GameDayRecord | undefined {
    return this.#gameDays.current
  }

  /** Returns a GameDay by its id or name; without both, the current or else the latest GameDay. */
  get(idOrName: string | undefined): GameDayRecord | undefined {
    return idOrName === undefined ? (this.current ?? this.list().at(-1)) : this.#gameDays.get(idOrName)
  }

  refusals(plan: GameDayPlan): readonly string[] {
    return this.#gameDays.refusals(plan)
  }

  /** Begins a GameDay. The same key of an agent returns the same GameDay, also after a restart of the gateway. */
  async start(agent: Agent, plan: GameDayPlan, key: string): Promise<Answered> {
    if (!agent.mayWrite) return readOnly(agent)
    const known = this.list().findLast((one) => one.isOfAgent && one.by === agent.name && one.key === key)
    if (known !== undefined)
      return known.plan.name === plan.name
        ? { ok: true, gameDay: known }
        : refusal('invalid', `the key ${key} began the GameDay ${known.plan.name} before: choose another key`)
    const refusals = this.refusals(plan)
    if (refusals.length > 0) return this.#refused(refusals)
    if (this.#gameDays.count >= MAX_FOR_AGENTS)
      return refusal(
        'busy',
        `the state folder has ${this.#gameDays.count} GameDays, and agents may fill it up to ${MAX_FOR_AGENTS}: a person must move files`,
      )
    if (this.#begun.isOver(agent.name))
      return tooOften(`${agent.name} began ${MAX_BEGUN} GameDays within an hour, the limit`)
    const started = await this.#gameDays.start(plan, { by: agent.name, isOfAgent: true, key })
    return started.ok ? started : this.#refused(started.refusals)
  }

  #refused(refusals: readonly string[]): Refusal {
    const message = refusals.join('; ')
    return this.current === undefined
      ? refusal('invalid', message)
      : refusal('busy', message, { repeat: 'later', see: 'get_gameday' })
  }

  /** Pauses the GameDay that is running, if one is; returns its id. */
  pauseCurrent(agent: Agent, why: string): string | undefined {
    const { current } = this
    if (current?.state !== 'running') return undefined
    return this.#gameDays.change(current.id, (day) => day.pause(agent.name, why)).ok ? current.id : undefined
  }

  /** Lets an agent change a GameDay. `pause` and `stop` are repeatable. */
  change(agent: Agent, idOrName: string | undefined, order: Order): Answered {
    const record = this.get(idOrName)
    if (record === undefined)
      return refusal(
        'not_found',
        idOrName === undefined ? 'there is no GameDay' : `there is no GameDay ${idOrName.slice(0, 64)}`,
      )
    const refused = this.#against(agent, record, order)
    if (refused !== undefined) return refused
    if (isDone(record, order)) return { ok: true, gameDay: record }
    const done = this.#gameDays.change(record.id, (day) => carryOut(day, agent.name, order))
    return done.ok ? { ok: true, gameDay: this.#gameDays.get(record.id)! } : refusal('invalid', done.why)
  }

  /** Returns why the agent may not give the order; undefined when it may. */
  #against(agent: Agent, record: GameDayRecord, order: Order): Refusal | undefined {
    const { action } = order
    if (action === 'pause' || action === 'stop') return undefined
    if (!agent.mayWrite) return readOnly(agent)
    const { name } = agent
    const { observations, actions } = record
    switch (action) {
      case 'skip':
        return notIts(agent, record, action)
      case 'resume':
        return (
          notIts(agent, record, action) ??
          (record.state === 'paused' && this.#resumed.isOver(name)
            ? tooOften(`${name} resumed GameDays ${MAX_RESUMED} times within an hour, the limit`)
            : undefined)
        )
      case 'observe':
        return this.#full('observations', observations, name, MAX_OBSERVATIONS)
      case 'add_action':
        return this.#full('actions', actions, name, MAX_ACTIONS)
      case 'close_action': {
        const found = actions[order.number - 1]
        return found === undefined || found.by === name || found.owner === name
          ? undefined
          : refusal(
              'not_allowed',
              `an agent closes only actions that the agent added or owns: action ${order.number} is of others`,
            )
      }
    }
  }

  #full(
    what: string,
    entries: readonly { readonly by: string }[],
    name: string,
    most: { readonly each: number; readonly all: number },
  ): Refusal | undefined {
    const ofAgents = entries.filter(({ by }) => this.#agents.includes(by))
    if (ofAgents.filter(({ by }) => by === name).length >= most.each)
      return refusal('busy', `${name} has ${most.each} ${what} in this GameDay, the limit`)
    return ofAgents.length >= most.all
      ? refusal('busy', `the agents have ${most.all} ${what} in this GameDay, the limit`)
      : undefined
  }
}

const tooOften = (message: string): Refusal =>
  refusal('busy', message, { repeat: 'later', retryAfterMs: HOUR_MS })

function notIts(
  { name }: Agent,
  { plan, by, isOfAgent, pauses, state }: GameDayRecord,
  action: 'resume' | 'skip',
): Refusal | undefined {
  const told = `an agent may only pause and stop the GameDay ${plan.name}`
  if (!isOfAgent || by !== name) return refusal('not_allowed', `${told}, which ${by} began`)
  const pauser = pauses.at(-1)?.by
  return state !== 'paused' || pauser === name || pauser === GATEWAY
    ? undefined
    : refusal('not_allowed', `${pauser} paused the GameDay ${plan.name}: a person must ${action} it`)
}

/** Whether a repeated pause or stop has nothing left to do. */
const isDone = (record: GameDayRecord, { action }: Order): boolean =>
  (action === 'stop' && isGameDayOver(record)) || (action === 'pause' && record.state !== 'running')

function carryOut(day: GameDay, by: string, order: Order): Done {
  switch (order.action) {
    case 'observe':
      return day.observe(by, order.text)
    case 'add_action':
      return day.addAction(by, order)
    case 'close_action':
      return day.closeAction(by, order.number)
    case 'resume':
      return day.resume(by)
    default:
      return day[order.action](by, order.why)
  }
}
