import type { Judged, ServerVital } from './claims.ts'
import type { Breach, Rule } from './gate.ts'
import type { Figures } from './meter.ts'
import type { Spec, State } from './spec.ts'

/** The targets of a run, at the time of the request. */
export interface Targets {
  readonly environment: string
  readonly servers: readonly {
    readonly name: string
    /** Matching tools; its faults can hit the tools in `hit`, other tools are not known to be read-only. */
    readonly tools: readonly string[]
    readonly hit: readonly string[]
  }[]
}

/** An action or observation of the run, with its time in milliseconds since the run began. */
export interface Decision {
  readonly atMs: number
  readonly what: string
  readonly why: string
}

/** One second of a run. */
export interface SampleRow {
  /** Since the run began, in milliseconds. */
  readonly atMs: number
  readonly phase: Phase
  /** Share of the treatment, in [0, 1]; 0 while there are no arms. */
  readonly share: number
  /** Calls in no arm during baseline and recovery, else those of each arm. */
  readonly arms: Readonly<Record<string, Pick<Figures, 'calls' | 'failed' | 'p50' | 'p95'>>>
}

export type Phase = 'waiting' | 'baseline' | 'stage' | 'recovery' | 'over'

/** The results of a stage. */
export interface StageRecord {
  readonly share: number
  readonly beganAtMs: number
  readonly endedAtMs: number
  readonly control: Figures
  readonly treatment: Figures
  /** The claims, compared with the treatment of this stage. */
  readonly claims: readonly Judged[]
}

/** The faults and arms that were left after the rollback: none, where the rollback is proven. */
export interface Proof {
  /** Milliseconds since the run began, and how long it took; undefined where the gateway had ended before, and the faults with it. */
  readonly atMs: number | undefined
  readonly tookMs: number | undefined
  /** Faults of the run that are still armed, and arms of it that calls are still assigned to. */
  readonly armed: readonly string[]
  readonly arms: readonly string[]
  /** State of the chaos mesh as a whole. */
  readonly chaos: string
  /** Layers that were not as they should be when it was rolled back, those of the treatment included. */
  readonly troubled: readonly string[]
}

/** A layer of the gateway that recovers by itself. */
export interface LayerState {
  /** Such as `breaker memory/read_graph`, `replica search#1`, `server memory`. */
  readonly name: string
  readonly state: string
  readonly isWell: boolean
}

/** A layer that was in trouble while the run went on, looked at four times a second. Times since the run began. */
export interface Trouble {
  readonly name: string
  readonly state: string
  readonly fromMs: number
  /** Undefined: until the run ended, or until its arm was gone. */
  readonly untilMs: number | undefined
}

/** The result of a probe of a target during the run. */
export interface ProbeRow {
  /** When it ended, in milliseconds since the run began. */
  readonly atMs: number
  readonly server: string
  /** The server's health after the probe: `well`, `suspicious`, `failing`. */
  readonly state: string
  /** Why the server is not well, such as `connection_refused`. */
  readonly reason: string | undefined
  /** Total time of its successful steps, in milliseconds. */
  readonly tookMs: number
}

/** The recovery of the run and its servers. */
export interface Recovery {
  /**
   * From the beginning of the first call that a fault did something to to the beginning of the window in which the steady
   * state held after the rollback. Where no fault did anything, from when the first stage came into force; undefined: it did not.
   */
  readonly recoveredAfterMs: number | undefined
  /** From the end of the faults to the beginning of the window in which the steady state held; undefined: it did not. */
  readonly steadyAfterMs: number | undefined
  /** By layer that was in trouble: time from the end of the faults to its recovery; null: still in trouble when the waiting ended. */
  readonly layers: Readonly<Record<string, number | null>>
  readonly waitedMs: number
  readonly limitMs: number
}

/** Whether and when the gateway noticed the faults. */
export interface Detection {
  /** When the first call began that a fault did something to, in milliseconds since the run began. */
  readonly firstEffectAtMs: number
  /** From there to the first sign; undefined: there was none. */
  readonly afterMs: number | undefined
  /** The first sign, such as `breaker memory/read_graph open`. */
  readonly sign: string | undefined
}

/** An estimate of the author, compared with the result. */
export interface Estimated {
  readonly of: 'outcome' | 'detect' | 'recover' | 'errorRatio' | 'p95'
  readonly expected: string
  readonly found: string
  /** An outcome that came true, a number that is at most half as much off, or a time that was kept. */
  readonly isRight: boolean
}

/** The counts of a fault of the run. */
export interface FaultRecord {
  readonly name: string
  readonly type: string
  readonly decided: number
  readonly injected: number
}

/** All facts about a run: the journal keeps them, and reports use them. */
export interface RunRecord {
  readonly format: 1
  readonly id: string
  readonly kind: 'guarded'
  readonly name: string
  readonly spec: Spec
  readonly shape: string
  /** Hashes of what was in force when it was asked for. */
  readonly hashes: { readonly config: string; readonly policies: string; readonly faults: string }
  readonly seed: string
  readonly targets: Targets
  readonly actor: string
  readonly approver: string | undefined
  /** The first played stage, from 0; earlier stages were skipped, with the approver's permission. */
  readonly firstStage: number
  readonly state: State
  readonly phase: Phase
  /** Why the run ended, or why it waits. */
  readonly reason: string
  /** Milliseconds since the Unix epoch. */
  readonly requestedAt: number
  readonly beganAt: number | undefined
  readonly endedAt: number | undefined
  /** The current or last played stage, from 0; -1 before the first. */
  readonly stage: number
  readonly rules: readonly Rule[]
  readonly hypothesis: {
    readonly before: readonly Judged[]
    readonly after: readonly Judged[]
  }
  readonly baseline: Figures | undefined
  readonly servers: readonly ServerVital[]
  readonly stages: readonly StageRecord[]
  readonly samples: readonly SampleRow[]
  readonly decisions: readonly Decision[]
  readonly breach: Breach | undefined
  readonly faults: readonly FaultRecord[]
  readonly engineErrors: number
  readonly traces: readonly string[]
  readonly detection: Detection | undefined
  readonly rollback: Proof | undefined
  readonly recovery: Recovery | undefined
  readonly troubles: readonly Trouble[]
  readonly probes: readonly ProbeRow[]
  readonly estimates: readonly Estimated[]
  /** The proposed next step, where this is the third run of its shape or a later one. */
  readonly proposal: string | undefined
}

/** As much of a record as a run has before it begins: what nothing is known of yet. */
export const blankRecord = (spec: Spec) =>
  ({
    beganAt: undefined,
    endedAt: undefined,
    stage: -1,
    rules: spec.gate.rollbackOn,
    hypothesis: { before: [], after: [] },
    baseline: undefined,
    servers: [],
    stages: [],
    samples: [],
    decisions: [],
    breach: undefined,
    faults: spec.faults.map(({ name, type }) => ({ name, type, decided: 0, injected: 0 })),
    engineErrors: 0,
    traces: [],
    detection: undefined,
    rollback: undefined,
    recovery: undefined,
    troubles: [],
    probes: [],
    estimates: [],
    proposal: undefined,
  }) satisfies Partial<RunRecord>

/** The next change of a record. */
export type Change = Partial<{ -readonly [Key in keyof RunRecord]: RunRecord[Key] }>

/** Whether a run has ended. */
export const isOver = ({ state }: Pick<RunRecord, 'state'>): boolean =>
  state !== 'running' && state !== 'pending_approval'
