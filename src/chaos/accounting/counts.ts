import type { Fate } from '../../mesh/call.ts'

/** The agent's next action, as somebody reported it or a canary showed. */
export type AgentOutcome = 'safe' | 'silent' | 'unknown'

/**
 * The counters of one fault, in calls or tries of them unless they say otherwise. As soon as no call is under way that it hit:
 *
 *     decided  ≥ injected + shadowed + overflow + notApplicable
 *     injected = hits + notReached
 *     hits     = masked + delayed + surfaced + escaped
 *
 * Each injection has one fate: the fate of the call that the injection hit. The counters of the mesh's reaction (`resent`,
 * `rejections`) and of kept replies (`kept`) stand beside these sums and are no part of them.
 */
export interface FaultCounts {
  /** It was decided about. */
  decided: number
  /** It was drawn, and there was something for it to do. */
  injected: number
  /** It took effect. */
  hits: number
  /** The call, or the fault, was over before it took effect. */
  notReached: number
  /** It would have been injected, in shadow mode. */
  shadowed: number
  /** It would have held more than `maxConcurrent`. */
  overflow: number
  /** It was drawn, and there was nothing for it to do at such a call. */
  notApplicable: number
  /** The mesh recovered: the agent never knew. */
  masked: number
  /** The agent got a good answer, and had to wait for it. */
  delayed: number
  /** How long agents had to wait, over all that were delayed, in milliseconds. */
  delayedMs: number
  /** An error, or word that something is missing, reached the agent: it can fail safely. */
  surfaced: number
  /** A corrupted reply reached the agent, looking fine. */
  escaped: number
  /** Later calls that a corrupted reply reached, looking fine: it had been kept. */
  kept: number
  /** Tries that the mesh sent after one that it had hit: retries and hedges. */
  resent: number
  /** Calls, and tries of them, that a breaker kept from a server which it had hit before. */
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

/** How many injections have no fate yet: the calls that they hit are under way. */
export function openFates(
  counts: Pick<FaultCounts, 'injected' | 'masked' | 'delayed' | 'surfaced' | 'escaped' | 'notReached'>,
): number {
  const { injected, masked, delayed, surfaced, escaped, notReached } = counts
  return injected - masked - delayed - surfaced - escaped - notReached
}

/** Counts what became of an injection that took effect; `delayedMs`: how long it held the call. */
export function countHit(counts: FaultCounts, fate: Exclude<Fate, 'not_reached'>, delayedMs: number): void {
  counts[fate]++
  if (fate === 'delayed') counts.delayedMs += delayedMs
}
