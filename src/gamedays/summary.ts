import { type GatewayFacts, summaryOf } from '../evidence/summary-of.ts'
import type { RunSummary } from '../evidence/summary.ts'
import type { Reason, Verdict } from '../evidence/verdict-names.ts'
import { hashOf } from '../experiments/guarded/spec.ts'
import type { RunRecord } from '../experiments/guarded/record.ts'
import { gameDayShape } from './comparison.ts'
import type { GameDayRecord, StepResult } from './record.ts'

/** Most rows of each list in a summary. */
const MOST = 64

/**
 * Judges a GameDay by its worst experiment. `failed` comes first, because a failure is proven whatever else was not run.
 * `no evidence` comes before the good verdicts, with the reasons: a GameDay must not pass by leaving out an experiment.
 */
export function gameDayVerdict({ steps }: Pick<GameDayRecord, 'steps'>): {
  readonly verdict: Verdict
  readonly reasons: readonly Reason[]
} {
  const results = steps.flatMap(({ result }) => result ?? [])
  const has = (verdict: Verdict) => results.some((one) => one.verdict === verdict)
  if (has('failed')) return { verdict: 'failed', reasons: [] }
  const isWhole = results.length === steps.length
  if (!isWhole || has('no evidence')) {
    const reasons = new Set(results.flatMap((one) => one.reasons))
    if (!isWhole) reasons.add('not_run')
    return { verdict: 'no evidence', reasons: [...reasons] }
  }
  return { verdict: has('held (weak)') ? 'held (weak)' : 'passed', reasons: [] }
}

/**
 * Returns the summary of a GameDay that is over. `runs`: the records of its runs, as far as these are kept. Calls,
 * windows and claims stay in the summaries of the runs. Only runs that are evidence count as effects of faults.
 */
export function summaryOfGameDay(
  record: GameDayRecord,
  runs: readonly RunRecord[],
  facts: GatewayFacts,
): RunSummary {
  const { id, plan, startedAt, endedAt, environment, by, state, steps } = record
  const { effectOf, ...gateway } = facts
  const last = new Map(steps.map(({ runs, result }) => [runs.at(-1), result]))
  const results = runs.flatMap((run) => {
    const result = last.get(run.id)
    return result === undefined ? [] : [{ run: summaryOf(run, facts), result }]
  })
  const all = results.map(({ run }) => run)
  const { verdict, reasons } = gameDayVerdict(record)
  const hashIn = (key: keyof RunSummary['hashes']) => {
    const values = [...new Set(all.map(({ hashes }) => hashes[key]))].sort()
    return values.length === 1 ? values[0]! : hashOf(values)
  }
  return {
    format: 1,
    id,
    kind: 'gameday',
    name: plan.name,
    plan: hashOf(plan),
    shape: gameDayShape(plan),
    at: startedAt,
    tookMs: Math.max(0, (endedAt ?? startedAt) - startedAt),
    ...gateway,
    version: record.version,
    environment,
    hashes: {
      config: hashIn('config'),
      policies: hashIn('policies'),
      faults: hashIn('faults'),
      targets: hashIn('targets'),
      load: hashIn('load'),
    },
    seed: null,
    by,
    approver: common(all.map(({ approver }) => approver)),
    approverProof: common(all.map(({ approverProof }) => approverProof)),
    envelope: common(all.map(({ envelope }) => envelope)),
    trust: common(all.map(({ trust }) => trust)),
    measuredBy: 'gateway',
    document: null,
    targets: targetsOf(all),
    load: loadOf(all),
    arms: [],
    faults: faultsOf(results),
    windows: [],
    transitions: [],
    recoveries: [],
    claims: [],
    estimates: [],
    rto: worstRecovery(steps.flatMap(({ result }) => result ?? [])),
    everyMs: null,
    state,
    verdict,
    reasons: [...reasons],
    share: null,
  }
}

/** Returns the value that all have; null when they differ. */
const common = (values: readonly (string | null)[]): string | null =>
  new Set(values).size === 1 ? values[0]! : null

function targetsOf(runs: readonly RunSummary[]): RunSummary['targets'] {
  const targets = runs.flatMap((run) => run.targets)
  return [...new Map(targets.map((one) => [`${one.server} ${one.tool}`, one])).values()].slice(0, MOST)
}

const realLoad: RunSummary['load'] = { model: 'real', rate: null, concurrency: null }

const loadOf = (runs: readonly RunSummary[]): RunSummary['load'] =>
  new Set(runs.map(({ load }) => JSON.stringify(load))).size === 1 ? runs[0]!.load : realLoad

type Fault = RunSummary['faults'][number]

/** Returns a row for each fault, with the sums over all runs that are evidence. */
function faultsOf(
  results: readonly { readonly run: RunSummary; readonly result: StepResult }[],
): RunSummary['faults'] {
  const merged = new Map<string, Fault>()
  for (const { run, result } of results)
    for (const one of run.faults) {
      const fault = result.verdict === 'no evidence' ? { ...one, ...unproven } : one
      const key = `${fault.type} ${fault.name}`
      const known = merged.get(key)
      merged.set(key, known === undefined ? fault : sumOf(known, fault))
    }
  return [...merged.values()].slice(0, MOST)
}

const unproven = {
  drawn: 0,
  applied: 0,
  notApplicable: 0,
  notReached: 0,
  masked: 0,
  delayed: 0,
  surfaced: 0,
  escaped: 0,
} as const

const sumOf = (a: Fault, b: Fault): Fault => ({
  ...a,
  drawn: a.drawn + b.drawn,
  applied: a.applied + b.applied,
  notApplicable: a.notApplicable + b.notApplicable,
  notReached: a.notReached + b.notReached,
  masked: a.masked + b.masked,
  delayed: a.delayed + b.delayed,
  surfaced: a.surfaced + b.surfaced,
  escaped: a.escaped + b.escaped,
})

/**
 * Returns the recovery that kept its promise worst: the GameDay is within its promise only if each experiment was.
 * Without a promise, the longest recovery.
 */
function worstRecovery(results: readonly StepResult[]): RunSummary['rto'] {
  const evidence = results.filter(({ verdict }) => verdict !== 'no evidence')
  const promised = evidence.filter(({ rtoMs }) => rtoMs !== undefined)
  const [worst] = [...(promised.length === 0 ? evidence : promised)].sort((a, b) => excess(b) - excess(a))
  return { promisedMs: worst?.rtoMs ?? null, measuredMs: worst?.recoveredMs ?? null }
}

/** Recovery as a multiple of the promise; finite numbers stand for measured recoveries. */
const excess = ({ recoveredMs, rtoMs }: StepResult): number =>
  recoveredMs === undefined ? Number.MAX_VALUE : recoveredMs / (rtoMs ?? 1)
