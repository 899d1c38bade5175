import type { Fate } from '../../mesh/injected.ts'

/**
 * The agent's reaction to a fault, as the agent reports it. `silent` also when a value made by the fault appears in a
 * later call.
 */
export type AgentOutcome = 'safe' | 'silent' | 'unknown'

/**
 * The counters of a fault, in calls or attempts unless otherwise stated. Once no hit call is under way:
 *
 *     decided  ≥ injected + shadowed + overflow + notApplicable
 *     injected = hits + notReached
 *     hits     = masked + delayed + surfaced + escaped
 *
 * Each injection has one fate: the fate of the hit call. The counters of the mesh's reaction (`resent`, `rejections`)
 * and of cached replies (`kept`) are outside of these sums.
 */
export interface FaultCounts {
  decided: number
  /** The random draw chose the call, and the fault was able to act on it. */
  injected: number
  hits: number
  /** The call, or the fault, was over before any effect. */
  notReached: number
  /** Would have been injected, in shadow mode. */
  shadowed: number
  /** Would have exceeded `maxConcurrent`. */
  overflow: number
  /** The random draw chose the call, but the fault found nothing to change. */
  notApplicable: number
  /** The agent got a good answer without a delay: the mesh recovered. */
  masked: number
  /** The agent got a good answer, after a delay. */
  delayed: number
  /** Total delay of all delayed calls, in milliseconds. */
  delayedMs: number
  /** The agent got an error, or a note that something is missing: it can fail safely. */
  surfaced: number
  /** The agent got a corrupted reply without a sign of an error. */
  escaped: number
  /** Later calls that got the corrupted reply from a cache, without a sign of an error. */
  kept: number
  /** Attempts the mesh sent after a hit attempt: retries and hedges. */
  resent: number
  /** Calls and attempts that an open breaker rejected after hits of the fault. */
  rejections: number
  safe: number
  silent: number
  unknown: number
}

export const newFaultCounts = (): FaultCounts => ({
  decided: 0,
  injected: 0,
  hits: 0,
  notReached: 0,
  shadowed: 0,
  overflow: 0,
  notApplicable: 0,
  masked: 0,
  delayed: 0,
  delayedMs: 0,
  surfaced: 0,
  escaped: 0,
  kept: 0,
  resent: 0,
  rejections: 0,
  safe: 0,
  silent: 0,
  unknown: 0,
})

/** Returns the number of injections that have no fate yet, because the hit calls are under way. */
export function openFates(
  counts: Pick<FaultCounts, 'injected' | 'masked' | 'delayed' | 'surfaced' | 'escaped' | 'notReached'>,
): number {
  const { injected, masked, delayed, surfaced, escaped, notReached } = counts
  return injected - masked - delayed - surfaced - escaped - notReached
}

/** Counts the fate of an injection with an effect; `delayedMs`: how long the fault held the call. */
export function countHit(counts: FaultCounts, fate: Exclude<Fate, 'not_reached'>, delayedMs: number): void {
  counts[fate]++
  if (fate === 'delayed') counts.delayedMs += delayedMs
}
