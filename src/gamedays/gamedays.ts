import { randomBytes } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'
import type { Done } from '../experiments/experiments.ts'
import type { RunRecord } from '../experiments/guarded/record.ts'
import type { Ended } from '../experiments/guarded/meter.ts'
import type { Clock } from '../mesh/clock.ts'
import { version } from '../protocol/identity.ts'
import { GameDay, type StepRuns } from './gameday.ts'
import type { GameDayPlan } from './plan.ts'
import { type GameDayRecord, GATEWAY, isGameDayOver, processEnds } from './record.ts'
import { StopConditions } from './stop-conditions.ts'
import { MAX_GAME_DAYS } from './store.ts'

export interface GameDaysParts {
  readonly clock: Clock
  /** The runs of a GameDay. */
  readonly runsOf: (plan: GameDayPlan, by: Requester) => StepRuns
  /** The store of GameDays, or why there is none. */
  readonly store:
    { write(record: GameDayRecord): Promise<void>; flush(): Promise<void> } | { readonly problem: string }
  /** `gateway.environment`. */
  readonly environment: string
  /** Returns why the plan may not begin here; empty when it may. */
  readonly refusals: (plan: GameDayPlan) => readonly string[]
  readonly withoutSecrets: (plan: GameDayPlan) => GameDayPlan
  /** The open incidents of all servers. */
  readonly incidents: () => Iterable<{
    readonly id: string
    readonly server: string
    readonly reason: string
  }>
  /** Puts the listening for neighbours' calls into force, or out of force. */
  readonly refresh: () => void
  /** Hears of each change of state: begun, paused, resumed, stopped, over. Must not throw. */
  readonly onState: (record: GameDayRecord) => void
  /** A record could not be written. */
  readonly onProblem: (record: GameDayRecord, problem: string) => void
}

/** The person or agent that begins a GameDay. Each run of an agent needs an envelope or a signed approval. */
export type Requester = Pick<GameDayRecord, 'by' | 'isOfAgent' | 'key'>

export type Started =
  | { readonly ok: true; readonly gameDay: GameDayRecord }
  | { readonly ok: false; readonly refusals: readonly string[] }

/** The GameDays of a gateway: one at a time, and the records of earlier ones. */
export class GameDays {
  readonly #parts: GameDaysParts
  /** The oldest first. */
  readonly #known = new Map<string, GameDayRecord>()
  #current: { readonly day: GameDay; readonly conditions: StopConditions } | undefined
  #isClosed = false

  constructor(parts: GameDaysParts) {
    this.#parts = parts
  }

  /** Takes over the GameDays of earlier processes. A GameDay that was under way is paused. */
  async recover(records: readonly GameDayRecord[]): Promise<void> {
    for (const record of records) {
      this.#known.set(record.id, record)
      if (isGameDayOver(record)) continue
      const { day } = this.#open(record.plan, interrupted(record, this.#parts.clock.wall()))
      await this.#write(day.record)
    }
  }

  /** Returns why a GameDay may not begin here and now; empty when it may. */
  refusals(plan: GameDayPlan): readonly string[] {
    const { store } = this.#parts
    const refusals = [...this.#parts.refusals(plan)]
    const { current } = this
    if (current !== undefined)
      refusals.push(`the GameDay "${current.plan.name}" is ${current.state}: only one is under way at a time`)
    if ('problem' in store) refusals.push(`the GameDay could not be recorded: ${store.problem}`)
    if (this.#known.size >= MAX_GAME_DAYS)
      refusals.push(
        `the state folder has ${MAX_GAME_DAYS} GameDays, the maximum: move files of its folder gamedays`,
      )
    if (this.#isClosed) refusals.push('the gateway is stopping')
    return refusals
  }

  /** Begins a GameDay. The gateway continues it, whether its requester stays or not. */
  async start(plan: GameDayPlan, { by, isOfAgent, key }: Requester): Promise<Started> {
    const { clock, environment, withoutSecrets } = this.#parts
    const refusals = this.refusals(plan)
    if (refusals.length > 0) return { ok: false, refusals }
    const shown = withoutSecrets(plan)
    const record: GameDayRecord = {
      format: 1,
      id: `gd-${Math.floor(clock.wall()).toString(36)}-${randomBytes(4).toString('hex')}`,
      plan: shown,
      isComplete: isDeepStrictEqual(shown, plan),
      version,
      environment,
      by,
      isOfAgent,
      key,
      state: 'running',
      reason: 'it runs',
      startedAt: clock.wall(),
      endedAt: undefined,
      steps: plan.experiments.map(({ spec: { name } }) => ({
        name,
        state: 'planned',
        runs: [],
        note: '',
        beganAt: undefined,
        result: undefined,
      })),
      pauses: [],
      observations: [],
      actions: [],
      events: [],
    }
    const opened = this.#open(plan, record)
    // Nothing begins before the GameDay is on disk.
    const problem = await this.#write(record)
    if (problem !== undefined || this.#isClosed) {
      this.#known.delete(record.id)
      this.#current = undefined
      return { ok: false, refusals: [problem ?? 'the gateway is stopping'] }
    }
    this.#parts.onState(record)
    opened.day.begin()
    return { ok: true, gameDay: opened.day.record }
  }

  /** The GameDay that is running or paused. */
  get current(): GameDayRecord | undefined {
    return this.#current?.day.record
  }

  /** All GameDays, the oldest first. */
  list(): readonly GameDayRecord[] {
    return [...this.#known.values()]
  }

  /** Returns a GameDay by its id, or the latest with this name. */
  get(idOrName: string): GameDayRecord | undefined {
    return this.#known.get(idOrName) ?? this.list().findLast(({ plan }) => plan.name === idOrName)
  }

  /** Lets `act` change a GameDay; see `GameDay`. */
  change(idOrName: string, act: (day: GameDay) => Done): Done {
    const record = this.get(idOrName)
    if (record === undefined) return { ok: false, why: `there is no GameDay "${idOrName.slice(0, 64)}"` }
    const { day } = this.#current?.day.record.id === record.id ? this.#current : this.#over(record)
    return act(day)
  }

  /** Takes the end of a run of the gateway. */
  ended(run: RunRecord): void {
    this.#current?.day.ended(run)
  }

  /** Whether the current GameDay has limits for calls of servers outside of its scope. */
  get hearsCalls(): boolean {
    return (this.current?.plan.stop.neighbours.length ?? 0) > 0
  }

  /** Counts an ended call for the conditions of `stop`. */
  called(server: string, ended: Ended): void {
    this.#current?.conditions.add(server, ended)
  }

  /** Pauses the current GameDay, for the next process. Resolves once all is written. */
  async close(): Promise<void> {
    this.#isClosed = true
    this.#current?.day.close()
    if (!('problem' in this.#parts.store)) await this.#parts.store.flush()
  }

  #open(plan: GameDayPlan, record: GameDayRecord) {
    const { clock, incidents, refresh } = this.#parts
    const conditions = new StopConditions(plan, { clock, incidents })
    const day = new GameDay(
      {
        clock,
        plan,
        runs: this.#parts.runsOf(plan, record),
        stopReason: () => conditions.look(),
        onChange: (changed) => this.#changed(changed),
      },
      record,
    )
    this.#known.set(record.id, record)
    this.#current = { day, conditions }
    if (plan.stop.neighbours.length > 0) refresh()
    return this.#current
  }

  /** A GameDay that is over accepts observations and actions only. */
  #over(record: GameDayRecord) {
    const { clock, runsOf } = this.#parts
    const { plan } = record
    const onChange = (changed: GameDayRecord) => this.#changed(changed)
    return {
      day: new GameDay(
        { clock, plan, runs: runsOf(plan, record), stopReason: () => undefined, onChange },
        record,
      ),
    }
  }

  #changed(record: GameDayRecord): void {
    const before = this.#known.get(record.id)
    this.#known.set(record.id, record)
    void this.#write(record)
    if (before?.state === record.state) return
    if (isGameDayOver(record) && this.#current?.day.record.id === record.id) {
      this.#current = undefined
      if (record.plan.stop.neighbours.length > 0) this.#parts.refresh()
    }
    this.#parts.onState(record)
  }

  /** Returns why a record could not be written; undefined when written. Never rejects. */
  async #write(record: GameDayRecord): Promise<string | undefined> {
    const { store } = this.#parts
    if ('problem' in store) return store.problem
    try {
      await store.write(record)
      return undefined
    } catch (error) {
      const problem = `the GameDay could not be written: ${(error as Error).message}`
      this.#parts.onProblem(record, problem)
      return problem
    }
  }
}

/** Returns the record of a GameDay whose process ended: paused, and its interrupted experiment planned again. */
function interrupted(record: GameDayRecord, now: number): GameDayRecord {
  if (record.state === 'paused') return record
  const why = processEnds.ended
  return {
    ...record,
    state: 'paused',
    reason: `${GATEWAY} paused it: ${why}`,
    pauses: [...record.pauses, { from: now, until: undefined, by: GATEWAY, why }],
    steps: record.steps.map((step) =>
      ['running', 'waiting', 'waits for approval'].includes(step.state)
        ? { ...step, state: 'planned', note: why, beganAt: undefined }
        : step,
    ),
    events: [...record.events, { at: now, what: 'paused', why }],
  }
}
