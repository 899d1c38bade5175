import type { Millis } from './clock.ts'

/** A reason for the gateway to end a call. */
export interface ReasonFacts {
  /** JSON-RPC code: 1000 plus the expected HTTP status, outside of the protocol's reserved range (-32768 … -32000). */
  readonly code: number
  /** Whether the same call may succeed later, all else unchanged. */
  readonly retryable: boolean
  /** Says what happened, in one sentence for the documentation. */
  readonly about: string
}

/** A reason that only one policy uses; its stable code is `BW_` and its name in capitals. */
export interface PolicyReason extends ReasonFacts {
  readonly name: string
}

/** The reasons of the data path, and reasons shared by several policies. */
export const reasons = {
  deadline_exceeded: { code: 1504, retryable: true, about: 'There was no answer before the deadline.' },
  attempt_timeout: {
    code: 1504,
    retryable: true,
    about: 'An attempt, or the handshake before an attempt, took too long.',
  },
  rate_limited: { code: 1429, retryable: true, about: 'A rate limit or a quota is used up.' },
  invalid_arguments: { code: 1422, retryable: false, about: "The arguments break the tool's inputSchema." },
  incorrect_result: { code: 1502, retryable: true, about: 'The answer was wrong, and was held back.' },
  upstream_unavailable: { code: 1503, retryable: true, about: 'The server cannot be reached.' },
  upstream_disconnected: { code: 1502, retryable: true, about: 'The connection to the server broke.' },
  upstream_status: { code: 1502, retryable: true, about: 'The server answered with an HTTP error.' },
  upstream_rate_limited: { code: 1429, retryable: true, about: 'The server answered with HTTP 429.' },
  upstream_unauthorized: { code: 1401, retryable: false, about: 'The server refused our credentials.' },
  upstream_forbidden: { code: 1403, retryable: false, about: 'The server forbids the request (HTTP 403).' },
  upstream_refused: { code: 1502, retryable: false, about: 'The server refused the request.' },
  bad_reply: { code: 1502, retryable: true, about: 'The reply was not a valid JSON-RPC response.' },
  reply_too_large: { code: 1413, retryable: false, about: 'The reply exceeded the size limit (`maxReply`).' },
  session_lost: { code: 1404, retryable: false, about: 'The session is over.' },
  overloaded: {
    code: 1429,
    retryable: true,
    about: 'A limit of the gateway is reached; the message names the limit.',
  },
  cancelled: { code: 1499, retryable: false, about: 'The caller cancelled the call or disconnected.' },
  shutting_down: { code: 1503, retryable: true, about: 'The gateway is shutting down.' },
  internal: { code: 1500, retryable: false, about: 'An internal error: a bug in Breakwater.' },
} as const satisfies Readonly<Record<string, ReasonFacts>>

/** A reason that any part of the gateway may use. */
export type Reason = keyof typeof reasons

/** Why a server is unreachable, where one reason covers several causes. */
export type FailureCause = 'dns' | 'connection_refused' | 'timeout' | 'tls' | 'process_exit'

/** Why a call got no reply from its server. A value, not an exception: the mesh never throws it. */
export interface GatewayError {
  /** A `Reason`, or the name of a `PolicyReason`. */
  readonly reason: string
  /** See `ReasonFacts`. */
  readonly code: number
  readonly retryable: boolean
  /** Says what happened and which limit was met. Safe to show to an agent: holds no secret. */
  readonly message: string
  /** Whether the request may have reached the server, and so may have run. */
  readonly sent: boolean
  /** Earliest useful retry, in milliseconds from now. */
  readonly retryAfterMs: Millis | undefined
  /** The HTTP status of the server's refusal; absent for other failures. */
  readonly status?: number
  /** The exact failure, for code that tells outages apart; never sent to agents. */
  readonly cause?: FailureCause
  /** Names of the faults behind the error, only for the gateway's own requests; never sent to agents. */
  readonly injected?: readonly string[]
  /**
   * True while the server's process is down. The call is not retried and nobody is blamed, because the server never got
   * it.
   */
  readonly notStarted?: true
}

export function gatewayError(
  reason: Reason | PolicyReason,
  message: string,
  {
    sent = false,
    retryAfterMs,
    status,
    cause,
  }: {
    sent?: boolean
    retryAfterMs?: Millis | undefined
    status?: number | undefined
    cause?: FailureCause | undefined
  } = {},
): GatewayError {
  const { code, retryable } = typeof reason === 'string' ? reasons[reason] : reason
  const name = typeof reason === 'string' ? reason : reason.name
  return {
    reason: name,
    code,
    retryable,
    message,
    sent,
    retryAfterMs,
    ...(status !== undefined && { status }),
    ...(cause !== undefined && { cause }),
  }
}

/** Returns the code of a reason for programs, such as `BW_BREAKER_OPEN`. */
export const stableCode = (reason: string): string => `BW_${reason.toUpperCase()}`

/** Whether an abort's reason, or any other caught value, is a `GatewayError`. */
export function isGatewayError(value: unknown): value is GatewayError {
  return typeof value === 'object' && value !== null && 'reason' in value && 'sent' in value
}
