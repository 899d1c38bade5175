import type { RunSummary } from './summary.ts'
import { hasEffect, type Judgement, LEAST_CALLS } from './verdict.ts'
import { type Reason, reasonNames, type Verdict } from './verdict-names.ts'

/** The parts of a summary that decide its verdict. `reasons`: found while measuring. */
export type Judged = Pick<RunSummary, 'kind' | 'arms' | 'faults' | 'claims' | 'state' | 'reasons'>

/**
 * Judges a run other than a guarded run by its figures and the status of its claims. `passed` needs each claim proven,
 * effective faults and enough calls. A claim that only held makes the run `held (weak)`. An undecided claim proves
 * nothing: the run is `no evidence`, with the reasons.
 */
export function judgementByClaims(run: Judged): Pick<Judgement, 'verdict' | 'reasons'> {
  const statuses = run.claims.map(({ status }) => status)
  const isFailed = statuses.includes('failed')
  const found: Partial<Record<Reason, boolean>> = {
    no_effective_fault: !areEffective(run),
    below_floor: isBelowFloor(run),
    journal_gap: run.state === 'failed',
    stopped: run.state === 'stopped',
  }
  const known = reasonNames.filter((name) => found[name] === true || run.reasons.includes(name))
  const isUndecided = !isFailed && (statuses.length === 0 || statuses.includes('not_measured'))
  // Any other reason explains why nothing was decided.
  const reasons: readonly Reason[] = known.length === 0 && isUndecided ? ['undecided'] : known
  const verdict: Verdict =
    reasons.length > 0
      ? 'no evidence'
      : isFailed
        ? 'failed'
        : statuses.every((status) => status === 'proven')
          ? 'passed'
          : 'held (weak)'
  return { verdict, reasons }
}

/** Whether the run had a treatment: faults with an effect, or arms with different policy sets. */
function areEffective({ kind, arms, faults }: Judged): boolean {
  const differ = new Set(arms.map(({ set }) => set)).size > 1
  switch (kind) {
    case 'comparison':
      // Faults are no part of the plan: whatever acted, acted in all arms.
      return differ
    case 'paired':
      return differ && faults.every(hasEffect)
    case 'soak':
      return faults.every(hasEffect)
    default:
      return faults.length > 0 && faults.every(hasEffect)
  }
}

function isBelowFloor({ kind, arms, claims }: Judged): boolean {
  if (arms.length === 0 || arms.some(({ calls }) => calls < LEAST_CALLS)) return true
  // The units of a comparison are tasks: many calls of few tasks are no sample.
  return (kind === 'comparison' || kind === 'paired') && claims.some(({ n }) => n < LEAST_CALLS)
}
