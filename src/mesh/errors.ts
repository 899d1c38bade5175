import type { Millis } from './clock.ts'

/**
 * Every way in which the gateway itself ends a call. JSON-RPC codes lie outside the range that the
 * protocol reserves (-32768 … -32000): 1000 plus the HTTP status that an engineer would expect.
 * `retryable`: whether the same call may succeed later, all else unchanged.
 */
export const reasons = {
  deadline_exceeded: { code: 1504, stable: 'BW_DEADLINE_EXCEEDED', retryable: true },
  deadline_infeasible: { code: 1504, stable: 'BW_DEADLINE_INFEASIBLE', retryable: true },
  breaker_open: { code: 1503, stable: 'BW_BREAKER_OPEN', retryable: true },
  bulkhead_full: { code: 1503, stable: 'BW_BULKHEAD_FULL', retryable: true },
  concurrency_limited: { code: 1503, stable: 'BW_CONCURRENCY_LIMITED', retryable: true },
  rate_limited: { code: 1429, stable: 'BW_RATE_LIMITED', retryable: true },
  invalid_arguments: { code: 1422, stable: 'BW_INVALID_ARGUMENTS', retryable: false },
  incorrect_result: { code: 1502, stable: 'BW_INCORRECT_RESULT', retryable: true },
  idempotency_conflict: { code: 1409, stable: 'BW_IDEMPOTENCY_CONFLICT', retryable: false },
  idempotency_full: { code: 1503, stable: 'BW_IDEMPOTENCY_FULL', retryable: true },
  attempt_timeout: { code: 1504, stable: 'BW_ATTEMPT_TIMEOUT', retryable: true },
  upstream_unavailable: { code: 1503, stable: 'BW_UPSTREAM_UNAVAILABLE', retryable: true },
  upstream_disconnected: { code: 1502, stable: 'BW_UPSTREAM_DISCONNECTED', retryable: true },
  upstream_status: { code: 1502, stable: 'BW_UPSTREAM_STATUS', retryable: true },
  upstream_rate_limited: { code: 1429, stable: 'BW_UPSTREAM_RATE_LIMITED', retryable: true },
  upstream_unauthorized: { code: 1401, stable: 'BW_UPSTREAM_UNAUTHORIZED', retryable: false },
  upstream_refused: { code: 1502, stable: 'BW_UPSTREAM_REFUSED', retryable: false },
  bad_reply: { code: 1502, stable: 'BW_BAD_REPLY', retryable: true },
  reply_too_large: { code: 1413, stable: 'BW_REPLY_TOO_LARGE', retryable: false },
  session_lost: { code: 1404, stable: 'BW_SESSION_LOST', retryable: false },
  overloaded: { code: 1429, stable: 'BW_OVERLOADED', retryable: true },
  cancelled: { code: 1499, stable: 'BW_CANCELLED', retryable: false },
  shutting_down: { code: 1503, stable: 'BW_SHUTTING_DOWN', retryable: true },
  internal: { code: 1500, stable: 'BW_INTERNAL', retryable: false },
} as const

export type Reason = keyof typeof reasons

/** Why a call got no reply of its server. A value, not an exception: the mesh never throws it. */
export interface GatewayError {
  readonly reason: Reason
  /** What happened and the limit that was met; safe to show to an agent, holds no secret. */
  readonly message: string
  /** Whether the request may have reached the server, and thus may have run. */
  readonly sent: boolean
  /** When trying again makes sense, in milliseconds from now. */
  readonly retryAfterMs: Millis | undefined
}

/** Builds a `GatewayError`; `sent` unless told otherwise is false. */
export function gatewayError(
  reason: Reason,
  message: string,
  { sent = false, retryAfterMs }: { sent?: boolean; retryAfterMs?: Millis | undefined } = {},
): GatewayError {
  return { reason, message, sent, retryAfterMs }
}

/** Whether an abort's reason, or anything else that was caught, is one of our errors. */
export function isGatewayError(value: unknown): value is GatewayError {
  return typeof value === 'object' && value !== null && 'reason' in value && 'sent' in value
}
