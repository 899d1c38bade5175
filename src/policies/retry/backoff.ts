import type { Call, Outcome } from '../../mesh/call.ts'
import type { Millis } from '../../mesh/clock.ts'
import type { Dice } from '../../mesh/dice.ts'

export interface Backoff {
  /** Longest wait before the first retry, in milliseconds; each further one may wait twice as long. */
  readonly base: Millis
  /** No wait is longer, in milliseconds, unless the server asks for it. */
  readonly cap: Millis
}

/** Longest wait for a call that has no deadline, in milliseconds: servers may ask for hours. */
const LONGEST_WAIT_MS = 60_000

/**
 * How long to wait before retry number `retry`, from 0, in milliseconds: a uniform draw from 0 up to the
 * exponential bound ("full jitter", Brooker 2015), which spreads a crowd the widest. Comes on top of what the
 * server asked for: all who were sent away got the same time from it.
 */
export function waitBefore(
  retry: number,
  call: Call,
  outcome: Outcome,
  { base, cap }: Backoff,
  dice: Dice,
): Millis {
  const { caller, id, record, server, tool, attempt } = call
  const key = `${caller.id}\n${id}\n${record.startedAt}\n${server}\n${tool ?? call.method}\n${attempt + retry}`
  const askedMs = outcome.kind === 'failed' ? (outcome.error.retryAfterMs ?? 0) : 0
  return askedMs + dice(key, 'retry') * Math.min(cap, base * 2 ** retry)
}

/**
 * Whether a try after the wait begins before the deadline. Time that the agent was asked does not count towards
 * deadlines, but who was asked has been sent something, and that call is not retried.
 */
export function fits(waitMs: Millis, { deadline }: Call, now: Millis): boolean {
  return waitMs < (deadline === undefined ? LONGEST_WAIT_MS : deadline.at - now)
}
