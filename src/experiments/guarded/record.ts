import type { Judged, ServerVital } from './claims.ts'
import type { Breach, Measurement, Rule } from './gate.ts'
import type { Cells, Figures } from './meter.ts'
import type { Spec, State } from './spec.ts'

/** The targets of a run when somebody requested the run. */
export interface Targets {
  readonly environment: string
  readonly servers: readonly {
    readonly name: string
    /** Matching tools. Faults can hit only the tools in `hit`; other tools are not known to be read-only. */
    readonly tools: readonly string[]
    readonly hit: readonly string[]
  }[]
}

/** An action or observation of the run. `atMs`: milliseconds since the run began. */
export interface Decision {
  readonly atMs: number
  readonly what: string
  readonly why: string
}

/** A second of a run, or several seconds in long runs. */
export interface SampleRow {
  /** End of the row, in milliseconds since the run began. */
  readonly atMs: number
  readonly phase: Phase
  /** Share of the treatment, in [0, 1]; 0 while there are no arms. */
  readonly share: number
  /** Injections of the run's faults within the row. */
  readonly injected: number
  /** The figures of each arm during stages; outside of stages the figures of all calls, under `all`. */
  readonly arms: Readonly<Record<string, SampledFigures>>
}

/** Figures of calls that ended within a row; `begun` calls began, and `retries` of any calls ended, within the row. */
export interface SampledFigures extends Pick<Figures, 'calls' | 'failed' | 'rejections' | 'p50' | 'p95'> {
  readonly begun: number
  readonly retries: number
}

export type Phase = 'waiting' | 'baseline' | 'stage' | 'recovery' | 'over'

export interface StageRecord {
  readonly share: number
  readonly beganAtMs: number
  readonly endedAtMs: number
  readonly control: Figures
  readonly treatment: Figures
  /** Durations of the ended calls of each arm, as pairs of cell and count; see `Tally.cells`. */
  readonly cells: Readonly<Record<'control' | 'treatment', Cells>>
  /** Judged by the treatment of this stage. */
  readonly claims: readonly Judged[]
}

/** The faults and arms left after the rollback; both empty for a proven rollback. */
export interface Proof {
  /**
   * Start of the rollback since the run began, and its duration, in milliseconds. Undefined if the gateway and its
   * faults ended before the rollback.
   */
  readonly atMs: number | undefined
  readonly tookMs: number | undefined
  /** Faults still armed, and arms still getting calls. */
  readonly armed: readonly string[]
  readonly arms: readonly string[]
  /** State of the chaos mesh as a whole. */
  readonly chaos: string
  /** Layers in trouble at the rollback, layers of the treatment included. */
  readonly troubled: readonly string[]
}

/** A layer of the gateway that recovers by itself. */
export interface LayerState {
  /** Name of the layer, such as `breaker memory/read_graph`, `replica search#1`, `server memory`. */
  readonly name: string
  readonly state: string
  readonly isWell: boolean
}

/** A layer in trouble during the run, by looks four times a second. Milliseconds since the run began. */
export interface Trouble {
  readonly name: string
  readonly state: string
  readonly fromMs: number
  /** End of the trouble. Undefined when the trouble lasted until the end of the run or of the layer's arm. */
  readonly untilMs: number | undefined
}

export interface ProbeRow {
  /** End of the probe, in milliseconds since the run began. */
  readonly atMs: number
  readonly server: string
  /** The server's health after the probe: `well`, `suspicious`, `failing`. */
  readonly state: string
  /** Failure reason, such as `connection_refused`; undefined for a successful probe. */
  readonly reason: string | undefined
  /** Total time of the successful steps, in milliseconds. */
  readonly tookMs: number
}

export interface Recovery {
  /**
   * Milliseconds from the start of the first call affected by a fault to the start of the window in which the steady
   * state held again. Without an affected call: from the start of the first stage. Undefined: no recovery.
   */
  readonly recoveredAfterMs: number | undefined
  /** Milliseconds from the end of the faults to the start of this window; undefined: no recovery. */
  readonly steadyAfterMs: number | undefined
  /** By troubled layer: milliseconds from the end of the faults to its recovery; null: no recovery within the wait. */
  readonly layers: Readonly<Record<string, number | null>>
  readonly waitedMs: number
  readonly limitMs: number
}

/** The first effect of the faults, and the first sign that the gateway noticed them. */
export interface Detection {
  /** Start of the first call affected by a fault, in milliseconds since the run began. */
  readonly firstEffectAtMs: number
  /** Milliseconds from this start to the first sign; undefined: no sign. */
  readonly afterMs: number | undefined
  /** The first sign, such as `breaker memory/read_graph open`. */
  readonly sign: string | undefined
}

/** An author's estimate, compared with the result. */
export interface Estimated {
  readonly of: 'outcome' | 'detect' | 'recover' | 'errorRatio' | 'p95'
  readonly expected: string
  readonly found: string
  /** True when the outcome came true, the number is off by at most half, or the time was kept. */
  readonly isRight: boolean
}

export interface FaultRecord {
  readonly name: string
  readonly type: string
  readonly decided: number
  /** Injections that were able to act; the next fields divide the injections by their fate, see `mesh/injected.ts`. */
  readonly injected: number
  readonly notApplicable: number
  readonly notReached: number
  readonly masked: number
  readonly delayed: number
  readonly surfaced: number
  readonly escaped: number
}

/** The counts of a fault without calls. */
export const noHits = {
  decided: 0,
  injected: 0,
  notApplicable: 0,
  notReached: 0,
  masked: 0,
  delayed: 0,
  surfaced: 0,
  escaped: 0,
} as const

/** How the approver of a run was proved. */
export interface ApproverProof {
  /** `key`: by an Ed25519 signature; `claimed`: by a name in a request with the control token. */
  readonly proved: 'key' | 'claimed'
  /** The key of a signed approval; undefined for an envelope, whose signature is in the ledger. */
  readonly keyId?: string | undefined
  /** Fingerprint of the gateway's list of trusted keys. */
  readonly trust?: string | undefined
  /** True when the approver also requested the run. */
  readonly self?: true | undefined
  /** The envelope and the proposal of an agent's run. */
  readonly envelope?: string | undefined
  readonly proposal?: string | undefined
}

/** All facts about a run, for the journal and for reports. */
export interface RunRecord {
  readonly format: 1
  readonly id: string
  readonly kind: 'guarded'
  readonly name: string
  readonly spec: Spec
  readonly shape: string
  /** Hashes of the config, the policies and the faults at the time of the request. */
  readonly hashes: { readonly config: string; readonly policies: string; readonly faults: string }
  readonly seed: string
  readonly targets: Targets
  readonly actor: string
  readonly approver: string | undefined
  readonly proof: ApproverProof | undefined
  /** The first played stage, from 0. The approver permitted skipping earlier stages. */
  readonly firstStage: number
  readonly state: State
  readonly phase: Phase
  /** Why the run ended or waits. */
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
  /** The gate's measurement nearest to its limit, see `Gate.nearest`. */
  readonly nearest: Measurement | undefined
  readonly faults: readonly FaultRecord[]
  readonly engineErrors: number
  readonly traces: readonly string[]
  readonly detection: Detection | undefined
  readonly rollback: Proof | undefined
  readonly recovery: Recovery | undefined
  readonly troubles: readonly Trouble[]
  readonly probes: readonly ProbeRow[]
  readonly estimates: readonly Estimated[]
  /** The proposed next step, from the third completed run of a shape on. */
  readonly proposal: string | undefined
}

/** Returns the fields of a record that are still empty before a run begins. */
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
    nearest: undefined,
    faults: spec.faults.map(({ name, type }) => ({ name, type, ...noHits })),
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

export type Change = Partial<{ -readonly [Key in keyof RunRecord]: RunRecord[Key] }>

/** Returns the number of stages that were played to their end. */
export const stagesPlayed = ({ stages, spec, firstStage }: RunRecord): number =>
  stages.filter(
    ({ beganAtMs, endedAtMs }, at) => endedAtMs - beganAtMs >= (spec.stages[firstStage + at]?.duration ?? 0),
  ).length

export const isOver = ({ state }: Pick<RunRecord, 'state'>): boolean =>
  state !== 'running' && state !== 'pending_approval'
