import { isDeepStrictEqual } from 'node:util'
import type { Done } from '../experiments/experiments.ts'
import { isOver, type RunRecord } from '../experiments/guarded/record.ts'
import type { Spec } from '../experiments/guarded/spec.ts'
import type { Cancel, Clock, Millis } from '../mesh/clock.ts'
import { clip } from '../units/recent.ts'
import { formatDuration } from '../units/duration.ts'
import { type GameDayPlan, specOf } from './plan.ts'
import {
  type GameDayChange,
  type GameDayRecord,
  GATEWAY,
  isGameDayOver,
  processEnds,
  resultOf,
  type StepRecord,
} from './record.ts'

/** A run that has begun or waits for approval, or the reasons against the run. */
export type Begun =
  | { readonly ok: true; readonly run: RunRecord }
  /** `isBusy`: another run occupies the gateway, so a later try may succeed. */
  | { readonly ok: false; readonly refusals: readonly string[]; readonly isBusy: boolean }
  /** Nothing began, because somebody must permit the run first. */
  | { readonly ok: false; readonly waits: Waiting }

/** A run that needs a permission before its begin. */
export interface Waiting {
  /** The reason, and the way to permit the run. */
  readonly note: string
  /** Whether another `begin` may have another result. Called once a second, so cheap. */
  readonly isReady: () => boolean
}

/** The runs of the gateway, as a GameDay needs them. */
export interface StepRuns {
  /** Begins a run, or requests the approval of a run; also called again for a run that waits. Never rejects. */
  begin(spec: Spec): Promise<Begun>
  /** Ends a run and clears its faults at once. Does nothing for a run that is over. */
  stop(run: Pick<RunRecord, 'id' | 'name'>, by: string, why: string): void
  /** Returns the last run of an experiment. */
  get(name: string): RunRecord | undefined
}

export interface GameDayParts {
  readonly clock: Clock
  readonly runs: StepRuns
  /** The plan with its secrets. */
  readonly plan: GameDayPlan
  /** Returns why a condition of `stop` is met; undefined when the GameDay may go on. */
  readonly stopReason: () => string | undefined
  /** Called after each change. Must not throw. */
  readonly onChange: (record: GameDayRecord) => void
}

/** Time between two looks at the conditions of `stop` and at the current run, in milliseconds. */
const LOOK_MS: Millis = 1_000

/** Pause before another try to begin while another run occupies the gateway, in milliseconds. */
const BUSY_MS: Millis = 2_000

const MAX_OBSERVATIONS = 500
const MAX_ACTIONS = 200
const MAX_PAUSES = 100
const MAX_EVENTS = 1_000

/** Most refusals in the reason of a pause, and most characters of the reason; the record is written at each change. */
const MAX_REFUSALS = 10
const MAX_REASON = 4_000

const ok: Done = { ok: true }
const refused = (why: string): Done => ({ ok: false, why })

/** Joins refusals; an experiment may be refused for each of thousands of servers. */
function inShort(refusals: readonly string[]): string {
  const more = refusals.length - MAX_REFUSALS
  const text = clip(refusals.slice(0, MAX_REFUSALS).join('; '), MAX_REASON)
  return more > 0 ? `${text}; and ${more} more` : text
}

/**
 * A GameDay: its experiments, one after the other. A pause clears the faults and stops the timers. The experiment under
 * way begins anew after a pause, because an interrupted measurement proves nothing.
 */
export class GameDay {
  readonly #parts: GameDayParts
  #record: GameDayRecord
  /** The timer of the pause before an experiment; `dueAt` on the monotonic clock. */
  #timer: { readonly cancel: Cancel; readonly dueAt: Millis } | undefined
  /** The rest of the pause before the next experiment; undefined: the whole pause. */
  #leftMs: Millis | undefined
  #looking: Cancel | undefined
  /** Set while the experiment under way waits without a run. */
  #waiting: Waiting | undefined
  /** Grows with each start and interruption, so that a late answer of `begin` is known as late. */
  #turn = 0

  constructor(parts: GameDayParts, record: GameDayRecord) {
    this.#parts = parts
    this.#record = record
  }

  get record(): GameDayRecord {
    return this.#record
  }

  begin(): void {
    // An order may have paused or ended the GameDay while its first record was being written.
    if (this.#record.state !== 'running') return
    this.#note('begun', `by ${this.#record.by}`)
    this.#look()
    this.#next()
  }

  /** Clears the faults of the current run, and stops all timers. */
  pause(by: string, why: string): Done {
    const { state, pauses } = this.#record
    if (state !== 'running') return refused(`the GameDay is ${state}, so it cannot be paused`)
    const pause = { from: this.#parts.clock.wall(), until: undefined, by, why }
    this.#change({ state: 'paused', reason: `${by} paused it: ${why}`, pauses: [...pauses, pause] })
    this.#interrupt(by, `the GameDay was paused: ${why}`)
    this.#note('paused', `by ${by}: ${why}`)
    return ok
  }

  resume(by: string): Done {
    const { state, pauses, isComplete } = this.#record
    if (state !== 'paused') return refused(`the GameDay is ${state}, so it cannot be resumed`)
    if (pauses.length >= MAX_PAUSES) return refused(`a GameDay has at most ${MAX_PAUSES} pauses`)
    if (!isComplete && this.#parts.plan === this.#record.plan)
      return refused(
        'the gateway has ended since, and the plan has secrets, which are not stored: start the GameDay again',
      )
    const until = this.#parts.clock.wall()
    this.#change({
      state: 'running',
      reason: 'it runs',
      pauses: pauses.map((pause) => (pause.until === undefined ? { ...pause, until } : pause)),
    })
    this.#note('resumed', `by ${by}`)
    this.#look()
    this.#next()
    return ok
  }

  /** Leaves out the experiment that is under way or next. */
  skip(by: string, why: string): Done {
    if (isGameDayOver(this.#record)) return refused('the GameDay is over')
    const step = this.#current
    if (step === undefined) return refused('no experiment is left')
    this.#interrupt(by, `the experiment was skipped: ${why}`)
    this.#leftMs = undefined
    this.#step(step.name, { state: 'skipped', note: `${by} skipped it: ${why}` })
    this.#note('skipped', `${step.name}, by ${by}: ${why}`)
    this.#next()
    return ok
  }

  stop(by: string, why: string): Done {
    if (isGameDayOver(this.#record)) return refused('the GameDay is over')
    this.#end('stopped', `${by} stopped it: ${why}`)
    return ok
  }

  observe(by: string, text: string): Done {
    const { observations } = this.#record
    if (observations.length >= MAX_OBSERVATIONS)
      return refused(`a GameDay has at most ${MAX_OBSERVATIONS} observations`)
    const { state } = this.#record
    const step = state === 'running' ? this.#underWay?.name : undefined
    this.#change({ observations: [...observations, { at: this.#parts.clock.wall(), by, text, step }] })
    return ok
  }

  /** `due`: a date such as 2026-12-24; undefined for none. */
  addAction(
    by: string,
    { what, owner, due }: { what: string; owner: string; due?: string | undefined },
  ): Done {
    const { actions } = this.#record
    if (actions.length >= MAX_ACTIONS) return refused(`a GameDay has at most ${MAX_ACTIONS} actions`)
    const action = { number: actions.length + 1, at: this.#parts.clock.wall(), by, what, owner, due }
    this.#change({ actions: [...actions, { ...action, done: undefined }] })
    return ok
  }

  closeAction(by: string, number: number): Done {
    const { actions } = this.#record
    const action = actions[number - 1]
    if (action === undefined) return refused(`there is no action ${number}: there are ${actions.length}`)
    if (action.done !== undefined) return refused(`action ${number} is done already`)
    const done = { at: this.#parts.clock.wall(), by }
    this.#change({ actions: actions.map((one) => (one === action ? { ...one, done } : one)) })
    return ok
  }

  /** Takes the end of a run of the gateway; ignores runs that are not the current experiment's. */
  ended(run: RunRecord): void {
    const step = this.#underWay
    if (this.#record.state !== 'running' || step === undefined || step.runs.at(-1) !== run.id) return
    if (run.state === 'aborted' && run.breach === undefined) {
      // A person, the kill switch or a lost fault ended the run: the lead decides how to go on.
      this.pause(GATEWAY, `the run of ${run.name} was ended: ${run.reason}`)
      return
    }
    const result = resultOf(run)
    this.#step(step.name, { state: 'done', note: '', result })
    this.#note(run.name, `${[result.verdict, ...result.reasons].join(', ')}: ${run.reason}`)
    this.#next()
  }

  /** Pauses, so that the next process can continue. */
  close(): void {
    if (this.#record.state === 'running') this.pause(GATEWAY, processEnds.stopped)
  }

  /** The experiment with a run, or whose run is about to begin. */
  get #underWay(): StepRecord | undefined {
    return this.#record.steps.find(({ state }) => state === 'running' || state === 'waits for approval')
  }

  /** The experiment under way, or else the next one. */
  get #current(): StepRecord | undefined {
    return (
      this.#underWay ?? this.#record.steps.find(({ state }) => state === 'planned' || state === 'waiting')
    )
  }

  #next(): void {
    if (this.#record.state !== 'running') return
    const step = this.#current
    if (step === undefined) return this.#end('over', 'all experiments were run or skipped')
    const waitMs = this.#leftMs ?? this.#planOf(step).after
    this.#leftMs = undefined
    if (waitMs <= 0) return void this.#start(step)
    this.#step(step.name, { state: 'waiting', note: `begins ${formatDuration(Math.round(waitMs))} later` })
    this.#wait(waitMs, step)
  }

  #planOf({ name }: StepRecord): GameDayPlan['experiments'][number] {
    return this.#parts.plan.experiments.find(({ spec }) => spec.name === name)!
  }

  #wait(ms: Millis, step: StepRecord, note?: string): void {
    const { clock } = this.#parts
    const cancel = clock.after(ms, () => {
      this.#timer = undefined
      void this.#start(step, note)
    })
    this.#timer = { cancel, dueAt: clock.now() + ms }
  }

  async #start(step: StepRecord, note = 'it is about to begin'): Promise<void> {
    const { runs, clock } = this.#parts
    const turn = ++this.#turn
    this.#leftMs = 0
    this.#waiting = undefined
    if (step.state !== 'waits for approval') this.#step(step.name, { state: 'waiting', note })
    const begun = await this.#tryToBegin(step)
    if (turn !== this.#turn) {
      // A pause, a skip or the end came first.
      if (begun.ok) runs.stop(begun.run, GATEWAY, 'the GameDay was interrupted while the run began')
      return
    }
    if ('waits' in begun) {
      const { note } = (this.#waiting = begun.waits)
      if (this.#underWay?.note === note) return
      this.#step(step.name, { state: 'waits for approval', note })
      this.#note(step.name, note)
      return
    }
    if (!begun.ok) {
      const why = inShort(begun.refusals)
      this.#step(step.name, { state: 'waiting', note: why })
      if (begun.isBusy) this.#wait(BUSY_MS, step, why)
      else this.pause(GATEWAY, `the experiment ${step.name} was refused: ${why}`)
      return
    }
    this.#leftMs = undefined
    const { id, state, reason } = begun.run
    const isWaiting = state === 'pending_approval'
    this.#step(step.name, {
      state: isWaiting ? 'waits for approval' : 'running',
      note: isWaiting ? reason : '',
      runs: [...step.runs, id],
      beganAt: clock.wall(),
    })
    this.#note(step.name, isWaiting ? reason : `run ${id} has begun`)
    if (isOver(begun.run)) this.ended(begun.run)
  }

  /** A rejection would end the gateway, so a defect counts as a refusal. */
  async #tryToBegin(step: StepRecord): Promise<Begun> {
    const { runs, plan } = this.#parts
    try {
      return await runs.begin(specOf(plan, this.#planOf(step)))
    } catch (error) {
      const refusals = [`internal error (a bug in Breakwater): ${(error as Error).message}`]
      return { ok: false, refusals, isBusy: false }
    }
  }

  /** Looks once a second whether the GameDay must stop, and whether somebody approved the waiting run. */
  #look(): void {
    this.#looking = this.#parts.clock.after(LOOK_MS, () => {
      const why = this.#parts.stopReason()
      if (why !== undefined) return this.#end('stopped', why)
      const step = this.#underWay
      if (step?.state === 'waits for approval' && this.#waiting?.isReady() === true) void this.#start(step)
      else if (step?.state === 'waits for approval') {
        const run = this.#parts.runs.get(step.name)
        if (run?.id === step.runs.at(-1) && run?.state === 'running')
          this.#step(step.name, { state: 'running', note: '', beganAt: this.#parts.clock.wall() })
      }
      this.#look()
    })
  }

  /** Stops timers and the current run. The experiment begins anew later. */
  #interrupt(by: string, why: string): void {
    this.#turn++
    this.#waiting = undefined
    const { clock, runs } = this.#parts
    if (this.#record.state !== 'running') this.#looking?.()
    if (this.#timer !== undefined) {
      this.#timer.cancel()
      this.#leftMs = Math.max(0, this.#timer.dueAt - clock.now())
      this.#timer = undefined
    }
    const step = this.#current
    if (step === undefined || step.state === 'planned') return
    const id = this.#underWay === undefined ? undefined : step.runs.at(-1)
    this.#step(step.name, { state: 'planned', note: id === undefined ? step.note : why, beganAt: undefined })
    if (id !== undefined) {
      this.#leftMs = 0
      runs.stop({ id, name: step.name }, by, why)
    }
  }

  #end(state: 'stopped' | 'over', reason: string): void {
    const endedAt = this.#parts.clock.wall()
    const pauses = this.#record.pauses.map((one) =>
      one.until === undefined ? { ...one, until: endedAt } : one,
    )
    this.#change({ state, reason, endedAt, pauses })
    this.#interrupt(GATEWAY, reason)
    this.#note(state, reason)
  }

  #step(name: string, change: Partial<StepRecord>): void {
    const { steps } = this.#record
    const before = steps.find((step) => step.name === name)
    if (isDeepStrictEqual({ ...before, ...change }, before)) return
    this.#change({ steps: steps.map((step) => (step.name === name ? { ...step, ...change } : step)) })
  }

  #note(what: string, why: string): void {
    const { events } = this.#record
    if (events.length < MAX_EVENTS)
      this.#change({ events: [...events, { at: this.#parts.clock.wall(), what, why }] })
  }

  #change(change: GameDayChange): void {
    this.#record = { ...this.#record, ...change }
    this.#parts.onChange(this.#record)
  }
}
