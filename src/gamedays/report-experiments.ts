import { faultsOf } from '../evidence/summary-of.ts'
import type { RunSummary } from '../evidence/summary.ts'
import { judgementOf } from '../evidence/verdict.ts'
import type { RunRecord } from '../experiments/guarded/record.ts'
import { clip } from '../units/recent.ts'
import type { GameDayRecord, StepRecord } from './record.ts'
import type { ExperimentReport, Outcome } from './report-shape.ts'

/** The stored runs of GameDays by id: whole records as far as the journal keeps these, and summaries of the index. */
export interface StoredRuns {
  readonly records: ReadonlyMap<string, RunRecord>
  readonly summaries: ReadonlyMap<string, RunSummary>
}

/** Longest shown note, in characters. */
const MOST_TEXT = 2_000

/** Most shown claims of an experiment. */
const MOST_CLAIMS = 64

/** Returns the verdict of an experiment, with its recovery against the promise. */
export function outcomeOf({ result }: Pick<StepRecord, 'result'>): Outcome {
  if (result === undefined) return { verdict: null, recoveredMs: null, rto: 'not proven' }
  const { verdict, recoveredMs, rtoMs } = result
  const rto = () => {
    if (verdict === 'no evidence') return 'not proven'
    if (recoveredMs === undefined) return 'open'
    if (rtoMs === undefined) return 'no promise'
    return recoveredMs <= rtoMs ? 'met' : 'missed'
  }
  return { verdict, recoveredMs: recoveredMs ?? null, rto: rto() }
}

/** Returns the results of all experiments, in the order of the plan. */
export const experimentsOf = ({ steps }: GameDayRecord, stored: StoredRuns): ExperimentReport[] =>
  steps.map((step) => experimentOf(step, stored))

function experimentOf(step: StepRecord, stored: StoredRuns): ExperimentReport {
  const { name, state, note, runs, result } = step
  const id = runs.at(-1) ?? ''
  return {
    name,
    state,
    note: clip(note, MOST_TEXT),
    ...outcomeOf(step),
    reasons: [...(result?.reasons ?? [])],
    why: result === undefined ? null : clip(result.why, MOST_TEXT),
    promisedMs: result?.rtoMs ?? null,
    endedAt: result === undefined ? null : new Date(result.endedAt).toISOString(),
    runs: runs.map((run) => ({
      id: run,
      record: stored.records.has(run) ? 'journal' : stored.summaries.has(run) ? 'index' : 'gone',
    })),
    ...(result === undefined ? noFacts : factsOf(stored.records.get(id), stored.summaries.get(id))),
  }
}

type Facts = Pick<ExperimentReport, 'claims' | 'faults' | 'approver' | 'approverProof' | 'leftBehind'>

const noFacts: Facts = { claims: [], faults: [], approver: null, approverProof: null, leftBehind: [] }

/** Returns the facts about a run, by its record or else by its summary. */
function factsOf(run: RunRecord | undefined, summary: RunSummary | undefined): Facts {
  if (run === undefined) {
    if (summary === undefined) return noFacts
    const { claims, faults, approver, approverProof } = summary
    return { claims, faults, approver, approverProof, leftBehind: [] }
  }
  const { approver, proof, rollback } = run
  return {
    claims: judgementOf(run)
      .claims.slice(0, MOST_CLAIMS)
      .map(({ value, low, high, ...claim }) => ({
        ...claim,
        value: finite(value),
        low: finite(low),
        high: finite(high),
      })),
    faults: faultsOf(run),
    approver: approver ?? null,
    approverProof: proof?.proved ?? null,
    leftBehind: [...(rollback?.armed ?? []), ...(rollback?.arms ?? [])],
  }
}

/** Returns null for a missing bound, because JSON has no infinite numbers. */
const finite = (value: number | null) => (value !== null && Number.isFinite(value) ? value : null)
