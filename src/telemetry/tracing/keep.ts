import type { CallRecord, Outcome, Verdict } from '../../mesh/call.ts'
import type { CallTrace } from './call-trace.ts'

/** Why the spans of a call are sent: only those that are `sampled` say how frequent something is. */
export type KeepReason = 'sampled' | 'error' | 'fault' | 'partial'

/** Drift is reported, but it is no error. */
const fine: ReadonlySet<Verdict> = new Set(['unchecked', 'correct', 'drift'])
const partial: ReadonlySet<Verdict> = new Set(['partial_declared', 'partial_silent'])

/** Decides at the end of a call, once, whether its spans are sent; undefined: they are not. */
export function whyKept(trace: CallTrace, record: CallRecord, outcome: Outcome): KeepReason | undefined {
  if (trace.sampled) return 'sampled'
  if (outcome.kind !== 'answered') return 'error'
  if (record.fates !== undefined || isHit(record)) return 'fault'
  if (outcome.partial !== undefined || partial.has(outcome.verdict)) return 'partial'
  if (!fine.has(outcome.verdict)) return 'error'
  return trace.attempts.some((attempt) => wentWrong(attempt.outcome)) ? 'error' : undefined
}

/** Whether a fault was done to it; one that was only decided changed nothing. */
function isHit({ faults }: CallRecord): boolean {
  return faults?.some(({ status }) => status === 'applied') === true
}

/** Whether an attempt went wrong of its own: one that was given up for a faster one did not. */
function wentWrong(outcome: Outcome | undefined): boolean {
  if (outcome === undefined) return false
  if (outcome.kind === 'answered') return !fine.has(outcome.verdict)
  return outcome.error.reason !== 'cancelled'
}
