import type { Claim } from '../claims/claim.ts'
import { judge } from '../claims/judge.ts'
import { subjects } from '../claims/subjects.ts'
import { type CallMetric, callMetrics, judgeRun, metricIn } from '../experiments/guarded/claims.ts'
import { type Cells, type Figures, GROWTH, LEAST_MS } from '../experiments/guarded/meter.ts'
import type { RunRecord } from '../experiments/guarded/record.ts'
import { claimsDuring, type Spec } from '../experiments/guarded/spec.ts'
import { binomialTails } from '../experiments/statistics/distributions.ts'
import { wilsonInterval } from '../experiments/statistics/proportions.ts'
import type { RunSummary } from './summary.ts'
import type { Reason, Verdict } from './verdict-names.ts'

/** Fewer injections with an effect prove nothing. */
const LEAST_APPLIED = 5

/** Fewer calls of the treatment in a stage prove nothing. */
export const LEAST_CALLS = 30

/** The least share of the seconds with an acting fault in which the treatment must have calls. */
export const LEAST_OVERLAP = 0.8

/** A row this much later than the row before is a gap: times the usual length of a row. */
const GAP = 5

/** A limit on durations from here on is never reached: calls end by their deadline, in milliseconds. */
export const UNREACHED_MS = 60_000

const ALPHA = 0.05

/** Faults at processes and servers hit all calls: one injection has an effect. */
const STANDING = /^(proc|registry|session|lists?|auth|upstream)\./

export const isStanding = (type: string): boolean => STANDING.test(type)

/** Whether a fault had an effect often enough. `applied`: injections that took effect. */
export const hasEffect = ({ type, applied }: { readonly type: string; readonly applied: number }): boolean =>
  applied >= (isStanding(type) ? 1 : LEAST_APPLIED)

export type ProvenClaim = RunSummary['claims'][number]

export interface Judgement {
  readonly verdict: Verdict
  readonly reasons: readonly Reason[]
  readonly claims: readonly ProvenClaim[]
}

/**
 * Judges an ended run. `passed` needs proof: the faults acted, calls met the faults, and the 95 % interval of each claim
 * about calls is inside the claim. A run that held without this proof is `held (weak)`. A run that can prove nothing is
 * `no evidence`, with the reasons.
 */
export function judgementOf(run: RunRecord): Judgement {
  const treatment = mergedTreatment(run)
  const claims = claimsDuring(run.spec).map((claim) => provenBy(claim, treatment, run))
  const reasons = reasonsAgainst(run)
  return { verdict: verdictOf(run, reasons, claims), reasons, claims }
}

function verdictOf(run: RunRecord, reasons: readonly Reason[], claims: readonly ProvenClaim[]): Verdict {
  if (reasons.length > 0) return 'no evidence'
  if (run.state !== 'completed') return 'failed'
  const isProven = claims.some(({ text }) => isAboutCalls(text)) && unproven(claims).length === 0
  return isProven ? 'passed' : 'held (weak)'
}

/** Returns the claims about calls that the run does not prove. */
export const unproven = (claims: readonly ProvenClaim[]): readonly string[] =>
  claims.flatMap(({ text, status }) => (isAboutCalls(text) && status !== 'proven' ? [text] : []))

const isAboutCalls = (text: string) =>
  (callMetrics as readonly string[]).includes(/^\w+/.exec(text)?.[0] ?? '')

function reasonsAgainst(run: RunRecord): readonly Reason[] {
  const { state, breach, hypothesis, engineErrors, stages, spec } = run
  const isOutcome =
    state === 'completed' || state === 'deviated' || (state === 'aborted' && breach !== undefined)
  const found: Partial<Record<Reason, boolean>> = {
    no_effective_fault: !areEffective(run),
    not_overlapping: !isOverlapping(run),
    // A gate may end a run within few calls: that is the result of the run, not a lack of calls.
    below_floor:
      stages.length === 0 ||
      (breach === undefined && stages.some((one) => one.treatment.calls < LEAST_CALLS)),
    unsteady_before: hypothesis.before.length === 0 || hypothesis.before.some(({ holds }) => holds !== true),
    control_failed_too: stages.some(({ control }) => breaks(spec, control)),
    engine_error: engineErrors > 0,
    journal_gap: hasGap(run),
    loose_tolerance: isLoose(run),
    stopped: !isOutcome,
  }
  return (Object.keys(found) as Reason[]).filter((reason) => found[reason] === true)
}

/** Whether each fault of a run without arms of other policies had an effect often enough. */
function areEffective({ spec, faults }: RunRecord): boolean {
  // Without faults the arms differ in their policy sets, and the comparison is the treatment.
  if (spec.faults.length === 0) return spec.arms.control !== spec.arms.treatment
  // A record without the counts of a fault shows no effect of this fault.
  if (faults.length < spec.faults.length) return false
  return faults.every(({ type, injected, notApplicable, notReached }) =>
    hasEffect({ type, applied: Math.max(0, injected - notApplicable - notReached) }),
  )
}

/** Whether the treatment had calls while the faults acted; a call that waits for its answer counts. */
function isOverlapping({ samples, spec }: RunRecord): boolean {
  if (spec.faults.length === 0) return true
  let [acting, met, inFlight] = [0, 0, 0]
  for (const { phase, injected, arms } of samples) {
    if (phase !== 'stage') continue
    const { begun = 0, calls = 0 } = arms.treatment ?? {}
    if (injected > 0) acting++
    if (injected > 0 && inFlight + begun + calls > 0) met++
    inFlight = Math.max(0, inFlight + begun - calls)
  }
  return acting > 0 && met >= LEAST_OVERLAP * acting
}

/** Whether figures break a claim for the time of the faults, by more than chance. */
function breaks(spec: Spec, figures: Figures): boolean {
  return claimsDuring(spec).some((claim) => {
    const { subject } = claim
    if (!isCallMetric(subject) || figures.calls < LEAST_CALLS) return false
    const [judged] = judgeRun([claim], figures, [])
    if (judged?.holds !== false) return false
    if (subject !== 'error_ratio' && subject !== 'rejected_ratio') return true
    const successes = subject === 'error_ratio' ? figures.failed : figures.rejected
    return judge([claim], wilsonInterval({ successes, units: figures.calls }, ALPHA).low) === false
  })
}

const isCallMetric = (subject: string): subject is CallMetric =>
  (callMetrics as readonly string[]).includes(subject)

/** Whether the record lacks a part of the run: its process ended, or rows are missing. */
function hasGap({ rollback, samples, state }: RunRecord): boolean {
  if (rollback !== undefined && (rollback.atMs ?? undefined) === undefined) return true
  if (state === 'failed') return true
  const rows = samples.filter(({ phase }) => phase === 'stage')
  const lengths = rows.slice(1).map(({ atMs }, at) => atMs - rows[at]!.atMs)
  const usual = [...lengths].sort((a, b) => a - b)[Math.floor(lengths.length / 2)] ?? 0
  return lengths.some((length) => length > GAP * Math.max(1_000, usual))
}

/** Whether no reachable value breaks the claims or the gate: each claim about calls, or each rule, is too loose. */
function isLoose(run: RunRecord): boolean {
  const { spec, rules } = run
  const most = highestErrorRatio(run)
  const isUnreachable = (subject: string, value: number) => {
    if (subject === 'error_ratio' || subject === 'rejected_ratio') return value >= most
    return isCallMetric(subject) && subjects[subject].unit === 'ms' && value >= UNREACHED_MS
  }
  const claims = claimsDuring(spec).filter(({ subject }) => isCallMetric(subject))
  const isAlwaysTrue = ({ subject, operator, value }: Claim) => {
    if (operator.startsWith('<')) return isUnreachable(subject, value)
    // No measured value is below 0.
    return operator === '>=' ? value <= 0 : operator === '>' && value < 0
  }
  if (claims.length > 0 && claims.every(isAlwaysTrue)) return true
  return rules.length > 0 && rules.every(({ metric, above }) => isUnreachable(metric, above))
}

/** Returns the error ratio of the treatment if each chosen call failed, on top of the failures of the baseline. */
function highestErrorRatio({ spec, baseline }: RunRecord): number {
  if (spec.faults.some(({ type }) => isStanding(type)) || spec.faults.length === 0) return 1
  const missed = spec.faults.reduce((left, { rate }) => left * (1 - rate), 1)
  const before = baseline === undefined || baseline.calls === 0 ? 0 : baseline.failed / baseline.calls
  return Math.min(1, 1 - missed + before)
}

interface Measured {
  readonly calls: number
  readonly failed: number
  readonly rejected: number
  /** Calls that did not end within the run: nobody knows whether these fail, or how long they take. */
  readonly waiting: number
  readonly cells: Cells
}

/** Returns the treatment of all stages as one: the stages differ in the share of calls, not in the faults. */
export function mergedTreatment({ stages }: Pick<RunRecord, 'stages'>): Measured {
  const cells = new Map<number, number>()
  let [calls, failed, rejected] = [0, 0, 0]
  for (const { treatment, cells: both } of stages) {
    calls += treatment.calls
    failed += treatment.failed
    rejected += treatment.rejected
    for (const [cell, count] of both.treatment) cells.set(cell, (cells.get(cell) ?? 0) + count)
  }
  // A call that waited at the end of an earlier stage ended later, or still waits.
  const waiting = stages.at(-1)?.treatment.waiting ?? 0
  return { calls, failed, rejected, waiting, cells: [...cells].sort(([a], [b]) => a - b) }
}

const quantiles: Partial<Record<string, number>> = { p50: 0.5, p90: 0.9, p95: 0.95, p99: 0.99 }

/** Judges a claim by the interval of the measured value. */
function provenBy(claim: Claim, measured: Measured, run: RunRecord): ProvenClaim {
  const { text, subject } = claim
  const judged = run.stages.flatMap(({ claims }) => claims.filter((one) => one.claim === text))
  const holds = judged.length > 0 && judged.every((one) => one.holds === true)
  const status = judged.some((one) => one.holds === false) ? 'failed' : holds ? 'held' : 'not_measured'
  const interval = intervalOf(subject, measured)
  if (interval === undefined) {
    const value = isCallMetric(subject) ? lastValue(subject, run) : undefined
    return { text, value: value ?? null, low: null, high: null, n: measured.calls, status }
  }
  const { estimate, low, high } = interval
  const isInside = judge([claim], { least: low, most: high }) === true
  return {
    text,
    value: estimate,
    low,
    high,
    n: measured.calls,
    status: holds && isInside ? 'proven' : status,
  }
}

const lastValue = (metric: CallMetric, { stages }: RunRecord) => {
  const last = stages.at(-1)?.treatment
  return last === undefined ? undefined : metricIn(metric, last)
}

/** Returns the interval of a measured value. Its upper end holds even if each waiting call fails, or never ends. */
function intervalOf(subject: string, { calls, failed, rejected, waiting, cells }: Measured) {
  if (calls === 0) return undefined
  const ofShare = (successes: number) => ({
    ...wilsonInterval({ successes, units: calls }, ALPHA),
    high: wilsonInterval({ successes: successes + waiting, units: calls + waiting }, ALPHA).high,
  })
  if (subject === 'error_ratio') return ofShare(failed)
  if (subject === 'rejected_ratio') return ofShare(rejected)
  const share = quantiles[subject]
  const ended = share === undefined ? undefined : quantileInterval(cells, share)
  if (ended === undefined || waiting === 0) return ended
  return { ...ended, high: quantileInterval([...cells, [Infinity, waiting]], share!)!.high }
}

/**
 * Returns a quantile of durations with its interval by order statistics (H. David and H. Nagaraja, "Order Statistics",
 * 2003, 7.1), in milliseconds. The upper bound is infinite when too few durations lie above the quantile.
 */
export function quantileInterval(cells: Cells, share: number) {
  const n = cells.reduce((sum, [, count]) => sum + count, 0)
  if (n === 0) return undefined
  const at = (rank: number, isUpper: boolean): number => {
    if (rank > n) return Infinity
    let left = rank
    for (const [cell, count] of cells)
      if ((left -= count) <= 0) return LEAST_MS * GROWTH ** (isUpper ? cell : cell - 1)
    return Infinity
  }
  // The ranks between which the quantile lies with at least 95 %.
  const lower = firstWhere(n, (k) => binomialTails(k, n, share).lower >= ALPHA / 2)
  const upper = firstWhere(n, (k) => binomialTails(k, n, share).upper <= ALPHA / 2) + 1
  const rank = Math.max(1, Math.ceil(share * n))
  return {
    estimate: at(rank, true),
    low: lower === 0 ? 0 : at(lower, false),
    high: at(upper, true),
  }
}

/** Returns the first of 0 … n that fits; the test fits all numbers after the first. Returns n when none fits. */
function firstWhere(n: number, fits: (k: number) => boolean): number {
  let [low, high] = [0, n]
  while (low < high) {
    const middle = Math.floor((low + high) / 2)
    if (fits(middle)) high = middle
    else low = middle + 1
  }
  return low
}
