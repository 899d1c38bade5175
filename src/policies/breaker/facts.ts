import type { Outcome } from '../../mesh/call.ts'
import type { Millis } from '../../mesh/clock.ts'
import { gatewayError } from '../../mesh/errors.ts'
import type { Counts, Dimension, Trip } from './health.ts'

export type BreakerState = 'closed' | 'open' | 'half_open'

/** Whose breaker it is. */
export interface BreakerOwner {
  readonly set: string
  readonly server: string
  /** Undefined for all requests of the server that are no calls of a listed tool. */
  readonly tool: string | undefined
  /** The endpoint that it is for. */
  readonly endpoint: string
  /** Index of the replica that is there now. */
  readonly replica: number
}

/** A breaker as the admin API shows it. */
export interface BreakerSnapshot {
  readonly state: BreakerState
  /** Since when, in milliseconds of the Unix epoch. */
  readonly since: Millis
  /** What brought the last change about; undefined when there was none. */
  readonly dimension: Dimension | undefined
  readonly why: string | undefined
  /** Whether it stays open until somebody closes or resets it. */
  readonly manual: boolean
  readonly availability: Counts
  readonly correctness: Counts
  /** Undefined when slow calls do not count. */
  readonly slow: Counts | undefined
  /** Failures in a row. */
  readonly consecutive: number
  /** How long it stays open this time, in milliseconds; undefined unless it is open and not held open. */
  readonly openForMs: Millis | undefined
  /** When the next call may try it, in milliseconds from now, 0 when it is due; undefined likewise. */
  readonly nextProbeInMs: Millis | undefined
  /** Counts the changes: what was admitted under another number does not count any more. */
  readonly generation: number
}

/** Longest wait that is proposed to whoever finds all probes taken, in milliseconds: probes mostly return soon. */
const LONGEST_PROBE_WAIT_MS = 1_000

/** `search/query`, or `search` for a server's other requests. */
function nameOf({ server, tool }: BreakerOwner): string {
  return tool === undefined ? server : `${server}/${tool}`
}

/** The answer of a breaker that is open; `waitMs` until the next probe is infinite when it is held open. */
export function refusedOpen(owner: BreakerOwner, trip: Trip | undefined, waitMs: Millis): Outcome {
  const opened = `breaker open for ${nameOf(owner)} (${trip?.why})`
  if (waitMs === Infinity) return refused(`${opened}, until it is closed by hand`, undefined)
  return refused(`${opened}; next probe in ${waitMs} ms`, waitMs)
}

/** The answer of a breaker that is being probed. */
export function refusedProbing(owner: BreakerOwner, trip: Trip | undefined, probeTimeout: Millis): Outcome {
  const waitMs = Math.min(probeTimeout, LONGEST_PROBE_WAIT_MS)
  return refused(`breaker half-open for ${nameOf(owner)} (${trip?.why}); all probes are under way`, waitMs)
}

function refused(message: string, retryAfterMs: Millis | undefined): Outcome {
  return { kind: 'rejected', error: gatewayError('breaker_open', message, { retryAfterMs }), by: 'breaker' }
}
