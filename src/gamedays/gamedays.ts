import { randomBytes } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'
import type { Done } from '../experiments/experiments.ts'
import type { RunRecord } from '../experiments/guarded/record.ts'
import type { Ended } from '../experiments/guarded/meter.ts'
import { Cancellation } from '../mesh/cancel.ts'
import type { Clock, Millis } from '../mesh/clock.ts'
import { version } from '../protocol/identity.ts'
import { formatSize } from '../units/size.ts'
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
  /** Puts the listening for neighbours' calls into force, or out of force. Throws when the config does not compile. */
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

/** Number of GameDays that stay in memory, the newest; the state folder keeps all. */
export const MAX_KEPT = 100

/** Largest plan as JSON, in bytes: each change of a GameDay writes the plan again. */
const MAX_PLAN = 1024 ** 2

/** How long `close` waits for the disk, in milliseconds. */
const FLUSH_MS: Millis = 2_000

/** Pause before another try to write a record, in milliseconds. */
const AGAIN_MS: Millis = 30_000

/** The GameDays of a gateway: one at a time, and the records of earlier ones. */
export class GameDays {
  readonly #parts: GameDaysParts
  /** The oldest first. */
  readonly #known = new Map<string, GameDayRecord>()
  /** Number of GameDays of the state folder. */
  #count = 0
  #current: { readonly day: GameDay; readonly conditions: StopConditions } | undefined
  /** Ids of the GameDays whose records wait for another try to write them. */
  readonly #unwritten = new Set<string>()
  #isClosed = false

  constructor(parts: GameDaysParts) {
    this.#parts = parts
  }

  /**
   * Takes over the GameDays of earlier processes, the oldest first. The GameDay that was under way is paused; `count`:
   * how many there are on disk.
   */
  async recover(records: readonly GameDayRecord[], count = records.length): Promise<void> {
    this.#count = count
    const last = records.findLast((record) => !isGameDayOver(record))
    for (const record of records) {
      if (isGameDayOver(record)) {
        this.#keep(record)
        continue
      }
      const now = this.#parts.clock.wall()
      const left = record === last ? interrupted(record, now) : displaced(record, now)
      if (record === last) this.#open(record.plan, left)
      else this.#keep(left)
      await this.#write(left)
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
    const bytes = Buffer.byteLength(JSON.stringify(plan))
    if (bytes > MAX_PLAN)
      refusals.push(
        `the plan has ${formatSize(Math.ceil(bytes / 1024) * 1024)}; at most ${formatSize(MAX_PLAN)} is allowed`,
      )
    if (this.#count >= MAX_GAME_DAYS)
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
    // Nothing begins before the GameDay is on disk, and its neighbours are heard.
    const problem = this.#hear(record) ?? (await this.#write(record))
    if (problem !== undefined) {
      this.#known.delete(record.id)
      this.#unwritten.delete(record.id)
      if (this.#current === opened) this.#current = undefined
      this.#hear(record)
      return { ok: false, refusals: [problem] }
    }
    this.#count++
    // An order, or the end of the gateway, may have come during the write.
    if (opened.day.record.state === 'running') this.#parts.onState(record)
    opened.day.begin()
    return { ok: true, gameDay: opened.day.record }
  }

  /** The GameDay that is running or paused. */
  get current(): GameDayRecord | undefined {
    return this.#current?.day.record
  }

  /** Number of GameDays in the state folder. */
  get count(): number {
    return this.#count
  }

  /** The GameDays in memory, the oldest first. */
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

  /** Whether a GameDay runs that has limits for calls of servers outside of its scope. */
  get hearsCalls(): boolean {
    return this.current?.state === 'running' && hasLimits(this.current)
  }

  /** Counts an ended call for the conditions of `stop`. */
  called(server: string, ended: Ended): void {
    this.#current?.conditions.add(server, ended)
  }

  /** Pauses the current GameDay, for the next process. Resolves once all is written, or after `FLUSH_MS`. */
  async close(): Promise<void> {
    this.#isClosed = true
    this.#current?.day.close()
    const { store, clock } = this.#parts
    if ('problem' in store) return
    // A hanging disk must not keep the process alive: the next process pauses a GameDay whose pause is not written.
    const limit = new Cancellation()
    const late = clock.sleep(FLUSH_MS, limit).catch(() => undefined)
    await Promise.race([store.flush(), late])
    limit.abort('written')
  }

  #open(plan: GameDayPlan, record: GameDayRecord) {
    const { clock, incidents } = this.#parts
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
    this.#keep(record)
    this.#current = { day, conditions }
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
    this.#keep(record)
    void this.#save(record)
    if (before?.state === record.state) return
    const isCurrent = this.#current?.day.record.id === record.id
    if (isCurrent && isGameDayOver(record)) this.#current = undefined
    this.#parts.onState(record)
    const problem = this.#hear(record)
    // Pauses later, because the GameDay is in the middle of a change.
    if (problem !== undefined) this.#parts.clock.after(0, () => this.#pause(record, problem))
  }

  #keep(record: GameDayRecord): void {
    this.#known.set(record.id, record)
    for (const id of this.#known.keys()) {
      if (this.#known.size <= MAX_KEPT) break
      this.#known.delete(id)
    }
  }

  /** Pauses a GameDay that is running; does nothing to others. */
  #pause({ id }: GameDayRecord, why: string): void {
    const day = this.#current?.day
    if (day?.record.id === id && day.record.state === 'running') day.pause(GATEWAY, why)
  }

  /**
   * Puts the listening for neighbours' calls into force for a GameDay that runs, and out of force otherwise. Returns why
   * a running GameDay is deaf; undefined when it hears all that it has to hear.
   */
  #hear(record: GameDayRecord): string | undefined {
    // At the end of the gateway, nothing needs another config.
    if (!hasLimits(record) || this.#isClosed) return undefined
    try {
      this.#parts.refresh()
      return undefined
    } catch (error) {
      return `the calls of neighbours cannot be heard: ${(error as Error).message}`
    }
  }

  /** Writes a change. A GameDay that cannot be recorded is paused, and its record is written later. */
  async #save(record: GameDayRecord): Promise<void> {
    const problem = await this.#write(record)
    if (problem === undefined) return
    this.#pause(record, problem)
    const { id } = record
    if (this.#unwritten.has(id)) return
    this.#unwritten.add(id)
    this.#parts.clock.after(AGAIN_MS, () => {
      const latest = this.#known.get(id)
      if (this.#unwritten.delete(id) && latest !== undefined && !this.#isClosed) void this.#save(latest)
    })
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

const hasLimits = ({ plan }: GameDayRecord) => plan.stop.neighbours.length > 0

/** Returns the record of an unfinished GameDay beside a later one: only one is under way at a time. */
function displaced(record: GameDayRecord, now: number): GameDayRecord {
  const why = 'another GameDay was under way when the gateway started'
  const { pauses } = record
  return {
    ...interrupted(record, now),
    state: 'stopped',
    reason: `the gateway stopped it: ${why}`,
    endedAt: now,
    pauses: pauses.map((pause) => (pause.until === undefined ? { ...pause, until: now } : pause)),
    events: [...record.events, { at: now, what: 'stopped', why }],
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
