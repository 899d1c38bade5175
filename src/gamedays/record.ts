import type { RunRecord } from '../experiments/guarded/record.ts'
import { judgementOf } from '../evidence/verdict.ts'
import { type Verdict, verdicts } from '../evidence/verdict-names.ts'
import type { Reason } from '../evidence/verdict-names.ts'
import type { Millis } from '../mesh/clock.ts'
import type { GameDayPlan } from './plan.ts'

export const gameDayStates = [
  'running',
  /** Faults are cleared, and timers stand still. */
  'paused',
  /** Somebody, or a condition of `stop`, ended the GameDay early. */
  'stopped',
  'over',
] as const
export type GameDayState = (typeof gameDayStates)[number]

export const stepStates = [
  'planned',
  /** The pause before the experiment is under way, or another run occupies the gateway. */
  'waiting',
  'waits for approval',
  'running',
  'done',
  'skipped',
] as const
export type StepState = (typeof stepStates)[number]

/** The result of an experiment of a GameDay. */
export interface StepResult {
  readonly state: RunRecord['state']
  readonly verdict: Verdict
  readonly reasons: readonly Reason[]
  /** Why the run ended, in words. */
  readonly why: string
  /** Recovery time, measured and promised; undefined: none. */
  readonly recoveredMs: Millis | undefined
  readonly rtoMs: Millis | undefined
  readonly endedAt: number
}

export interface StepRecord {
  /** Name of the experiment. */
  readonly name: string
  readonly state: StepState
  /** Ids of its runs, the latest last: a paused experiment begins anew. */
  readonly runs: readonly string[]
  /** Why the step waits, or was not run; empty otherwise. */
  readonly note: string
  readonly beganAt: number | undefined
  readonly result: StepResult | undefined
}

export interface Observation {
  readonly at: number
  readonly by: string
  readonly text: string
  /** The experiment under way; undefined between experiments. */
  readonly step: string | undefined
}

export interface Action {
  /** From 1. */
  readonly number: number
  readonly at: number
  readonly by: string
  readonly what: string
  readonly owner: string
  /** A date such as 2026-12-24; undefined without a date. */
  readonly due: string | undefined
  readonly done: { readonly at: number; readonly by: string } | undefined
}

/** All facts about a GameDay. Times are milliseconds since the Unix epoch. */
export interface GameDayRecord {
  readonly format: 1
  readonly id: string
  /** Without secrets. */
  readonly plan: GameDayPlan
  /** True when the plan is complete without its secrets, so that another process can continue the GameDay. */
  readonly isComplete: boolean
  readonly version: string
  readonly environment: string
  readonly by: string
  readonly isOfAgent: boolean
  /** The agent's key for the start; undefined for a person's GameDay. */
  readonly key?: string | undefined
  readonly state: GameDayState
  /** Why the GameDay is in this state. */
  readonly reason: string
  readonly startedAt: number
  readonly endedAt: number | undefined
  readonly steps: readonly StepRecord[]
  readonly pauses: readonly {
    readonly from: number
    readonly until: number | undefined
    readonly by: string
    readonly why: string
  }[]
  readonly observations: readonly Observation[]
  readonly actions: readonly Action[]
  /** Steps of the GameDay, in order. */
  readonly events: readonly { readonly at: number; readonly what: string; readonly why: string }[]
}

/** Stands for decisions of the gateway itself. */
export const GATEWAY = 'the gateway'

/** Why the gateway pauses a GameDay when its process ends: in order, or not. */
export const processEnds = { stopped: 'the gateway was stopped', ended: 'the gateway ended' } as const

export type GameDayChange = Partial<GameDayRecord>

export const isGameDayOver = ({ state }: Pick<GameDayRecord, 'state'>): boolean =>
  state === 'stopped' || state === 'over'

/** Returns the result of an ended run. */
export function resultOf(run: RunRecord): StepResult {
  const { verdict, reasons } = judgementOf(run)
  return {
    state: run.state,
    verdict,
    reasons,
    why: run.reason,
    recoveredMs: run.recovery?.recoveredAfterMs,
    rtoMs: run.spec.recovery.rto,
    endedAt: run.endedAt ?? run.requestedAt,
  }
}

/** The result of a GameDay: counts, never an average. */
export interface GameDayResult {
  readonly verdicts: Readonly<Record<Verdict, number>>
  /** Experiments without a result: skipped, or not reached. */
  readonly notRun: number
  /** Experiments within the promised recovery time, of the experiments that are evidence and have a promise. */
  readonly rtoMet: number
  readonly rtoPromised: number
  /** Longest measured recovery; undefined without one. `isOpen`: an experiment did not recover at all. */
  readonly worstRecoveryMs: Millis | undefined
  readonly isOpen: boolean
  readonly openActions: number
}

export function gameDayResult({ steps, actions }: Pick<GameDayRecord, 'steps' | 'actions'>): GameDayResult {
  const results = steps.flatMap(({ result }) => result ?? [])
  const evidence = results.filter(({ verdict }) => verdict !== 'no evidence')
  const promised = evidence.filter(({ rtoMs }) => rtoMs !== undefined)
  const times = evidence.flatMap(({ recoveredMs }) => recoveredMs ?? [])
  return {
    verdicts: Object.fromEntries(
      verdicts.map((verdict) => [verdict, results.filter((one) => one.verdict === verdict).length]),
    ) as Record<Verdict, number>,
    notRun: steps.length - results.length,
    rtoMet: promised.filter(({ recoveredMs, rtoMs }) => recoveredMs !== undefined && recoveredMs <= rtoMs!)
      .length,
    rtoPromised: promised.length,
    worstRecoveryMs: times.length === 0 ? undefined : Math.max(...times),
    isOpen: evidence.some(({ recoveredMs }) => recoveredMs === undefined),
    openActions: actions.filter(({ done }) => done === undefined).length,
  }
}
