import type { Spec } from '../experiments/guarded/spec.ts'
import { hashOf } from '../experiments/guarded/spec.ts'
import type { RunRecord, StageRecord } from '../experiments/guarded/record.ts'
import type { RunSummary } from './summary.ts'
import { clip } from '../units/recent.ts'
import { judgementOf } from './verdict.ts'

/** Facts about the gateway of a run that the record of the run does not have. */
export interface GatewayFacts extends Pick<
  RunSummary,
  'version' | 'gateway' | 'bootId' | 'replicas' | 'host'
> {
  /** Protocol eras and transports of the servers, such as `modern` and `stdio`. */
  readonly era: string
  readonly transport: string
  readonly effectOf: (server: string, tool: string) => string
}

/** Most rows of each list in a summary. */
const MOST = 64

/** Longest name in a summary, in characters. */
const LONGEST = 200

/** Returns a name short enough for a summary. Names of tools come from servers, and no name may hide its run. */
const named = (name: string): string => clip(name, LONGEST) || '–'

/** Returns the summary of an ended guarded run. */
export function summaryOf(run: RunRecord, facts: GatewayFacts): RunSummary {
  const { effectOf, ...gateway } = facts
  const { spec, stages, recovery, hashes, proof } = run
  const { verdict, reasons, claims } = judgementOf(run)
  const began = run.beganAt ?? run.requestedAt
  return {
    format: 1,
    id: run.id,
    kind: 'guarded',
    name: run.name,
    plan: hashOf(spec),
    shape: run.shape,
    at: began,
    tookMs: Math.max(0, (run.endedAt ?? began) - began),
    ...gateway,
    measuredBy: 'gateway',
    document: null,
    environment: run.targets.environment,
    hashes: { ...hashes, targets: hashOf(run.targets), load: hashOf(spec.load ?? 'real') },
    seed: run.seed,
    by: named(run.actor),
    approver: run.approver === undefined ? null : named(run.approver),
    approverProof: proof?.proved ?? null,
    envelope: proof?.envelope ?? null,
    trust: proof?.trust ?? null,
    targets: run.targets.servers
      .flatMap(({ name, hit }) =>
        hit.map((tool) => ({ server: name, tool: named(tool), effect: effectOf(name, tool) })),
      )
      .slice(0, MOST),
    load: loadOf(spec),
    arms: (['control', 'treatment'] as const).map((arm) => armOf(arm, run)),
    faults: faultsOf(run),
    windows: stages.flatMap((stage, at) =>
      (['control', 'treatment'] as const).map((arm) => windowOf(stage, run.firstStage + at, arm)),
    ),
    transitions: run.troubles.slice(0, MOST).map(({ name, state, fromMs }) => ({
      atMs: fromMs,
      layer: layerOf(name),
      name: named(name),
      from: 'well',
      to: named(state),
    })),
    recoveries: Object.entries(recovery?.layers ?? {})
      .slice(0, MOST)
      .map(([name, ms]) => ({
        layer: layerOf(name),
        name: named(name),
        ms: ms ?? recovery!.waitedMs,
        censored: ms === null,
      })),
    claims: [...claims],
    estimates: run.estimates.map(({ isRight, ...estimate }) => ({ ...estimate, right: isRight })),
    rto: { promisedMs: spec.recovery.rto ?? null, measuredMs: recovery?.recoveredAfterMs ?? null },
    everyMs: spec.every ?? null,
    state: run.state,
    verdict,
    reasons: [...reasons],
    share: stages.at(-1)?.share ?? null,
  }
}

/** Returns the faults of a run, with their injections by fate. */
export const faultsOf = (run: RunRecord): RunSummary['faults'] =>
  run.faults.slice(0, MOST).map(({ injected, notApplicable, notReached, decided, ...fault }) => ({
    ...fault,
    planned: null,
    drawn: injected,
    applied: Math.max(0, injected - notApplicable - notReached),
    notApplicable,
    notReached,
  }))

/** Returns the first word of a layer's name, such as `breaker`. */
const layerOf = (name: string) => named(name.split(' ')[0]!)

function loadOf({ load }: Spec): RunSummary['load'] {
  if (load === undefined) return { model: 'real', rate: null, concurrency: null }
  const { arrivals } = load.workload as { arrivals?: { perSecond?: number } | number }
  const rate = typeof arrivals === 'number' ? arrivals : (arrivals?.perSecond ?? null)
  return { model: arrivals === undefined ? 'closed' : 'open', rate, concurrency: load.concurrency }
}

function armOf(arm: 'control' | 'treatment', { spec, stages }: RunRecord): RunSummary['arms'][number] {
  const sum = (of: (figures: StageRecord['control']) => number) =>
    stages.reduce((total, stage) => total + of(stage[arm]), 0)
  const calls = sum((one) => one.calls)
  return {
    name: arm,
    set: spec.arms[arm],
    calls,
    good: calls - sum((one) => one.failed),
    wrong: null,
    rejected: sum((one) => one.rejected),
    unjudged: sum((one) => one.waiting),
    attempts: sum((one) => one.attempts),
  }
}

const windowOf = (stage: StageRecord, at: number, arm: 'control' | 'treatment') => ({
  phase: 'stage',
  stage: at,
  arm,
  fromMs: stage.beganAtMs,
  toMs: stage.endedAtMs,
  calls: stage[arm].calls,
  good: stage[arm].calls - stage[arm].failed,
  failed: stage[arm].failed,
  wrong: null,
  cells: stage.cells[arm].map(([cell, count]): [number, number] => [cell, count]),
})
