import type { CallRecord, CallResult, Deadline, Outcome, Verdict } from './call.ts'
import type { Millis } from './clock.ts'
import type { GatewayError, Reason } from './errors.ts'
import { injectedFaults } from './injected.ts'
import type { Effect } from './policy.ts'

/** The result of a call in metrics. */
export type Result =
  'returned' | 'rpc_error' | 'caller_error' | 'timeout' | 'transport_error' | 'cancelled' | 'rejected'

/** JSON-RPC codes that blame the caller and not the server. */
const callerErrors = new Set([-32700, -32600, -32601, -32602, -32002, -32020, -32021, -32022, -32042])

/** Returns the verdict on a well-formed response. */
export function verdictOf(response: Readonly<Record<string, unknown>>): Verdict {
  if ('error' in response) return 'rpc_error'
  const result = response.result as { isError?: unknown } | undefined
  return result?.isError === true ? 'tool_error' : 'unchecked'
}

/** Returns the verdict on a call's reply, even when held back from the agent; undefined when no reply came. */
export function verdictIn(outcome: Outcome): Verdict | undefined {
  return outcome.kind === 'rejected' ? undefined : outcome.verdict
}

/** The fact about a call that affects blame, besides the outcome. */
type Known = Pick<CallRecord, 'isInvalid'>

/** Returns the result of a call. A tool's error about arguments that break its schema counts as the caller's error. */
export function resultOfCall(outcome: Outcome, { isInvalid }: Known): Result {
  const isTold = outcome.kind === 'answered' && outcome.verdict === 'tool_error'
  return isInvalid && isTold ? 'caller_error' : resultOf(outcome)
}

/** Returns the result of an outcome. No other function decides the result. */
export function resultOf(outcome: Outcome): Result {
  switch (outcome.kind) {
    case 'answered':
      if (outcome.verdict !== 'rpc_error') return 'returned'
      return isCallersFault(outcome.result) ? 'caller_error' : 'rpc_error'
    case 'rejected':
      return 'rejected'
    case 'failed':
      if (outcome.verdict !== undefined) return 'returned'
      switch (outcome.error.reason) {
        case 'attempt_timeout':
        case 'deadline_exceeded':
          return 'timeout'
        case 'cancelled':
          return 'cancelled'
        default:
          return 'transport_error'
      }
  }
}

/**
 * Whether a call went wrong from the agent's view, whoever is to blame. True for no reply, an error, a wrong reply, or
 * a tool that reports its own failure. False for calls that the agent cancelled, for mistakes of the agent, and for
 * replies that the server declared partial.
 */
export function wentWrong(outcome: Outcome, record: Known): boolean {
  const result = resultOfCall(outcome, record)
  if (result === 'cancelled' || result === 'caller_error') return false
  return outcome.kind !== 'answered' || wrongVerdicts.has(outcome.verdict)
}

/** Counts of calls by result: the basis of the ratios in all reports. */
export interface CallCounts {
  /** Finished calls. */
  calls: number
  /** Calls that are evidence about servers and policies: the agent neither cancelled the call nor made a mistake. */
  valid: number
  /** Valid calls not rejected by the gateway. */
  eligible: number
  /** Eligible calls with a reply. */
  returned: number
  /** Returned calls that did not go wrong from the agent's view. */
  good: number
  /** Good calls whose reply could not be checked. */
  unchecked: number
}

/** Counts a finished call; returns true when the call went wrong. */
export function countCall(counts: CallCounts, outcome: Outcome, record: Known): boolean {
  const result = resultOfCall(outcome, record)
  counts.calls++
  if (result === 'cancelled' || result === 'caller_error') return false
  const isWrong = wentWrong(outcome, record)
  counts.valid++
  if (result !== 'rejected') counts.eligible++
  if (result === 'returned') counts.returned++
  if (!isWrong) counts.good++
  if (outcome.kind === 'answered' && outcome.verdict === 'unchecked') counts.unchecked++
  return isWrong
}

/** Whether an error's JSON-RPC code blames the caller. */
function blamesCaller({ value }: CallResult): boolean {
  const error = value.error as { code?: unknown } | undefined
  return typeof error?.code === 'number' && callerErrors.has(error.code)
}

/**
 * Whether the caller is to blame for an error. A failure status (500 or above) blames the server, whatever the code.
 */
const isCallersFault = (result: CallResult) =>
  result.status < 500 && (blamesCaller(result) || isRefusal(result.status))

/** Whether an HTTP status refuses a single request: 4xx except 408 (too slow) and 429 (rate limit). */
function isRefusal(status: number): boolean {
  return status >= 400 && status < 500 && status !== 408 && status !== 429
}

/** Returns an attempt's result. A breaker's rejection is no attempt, and layers below the breaker never reject. */
export function attemptOutcomeOf(outcome: Outcome, known: Known): Exclude<Result, 'rejected'> {
  const result = resultOfCall(outcome, known)
  return result === 'rejected' ? 'transport_error' : result
}

/**
 * Whether a retry or another answer is useful after a sent call. True for no answer, or an error whose code does not
 * blame the caller. `isError: true` counts as an answer. For blame, see `attributionOf`: a server that refuses a
 * request may accept the next.
 */
export function isFailure(outcome: Outcome): boolean {
  if (outcome.kind !== 'answered') return outcome.kind === 'failed'
  return outcome.verdict === 'rpc_error' && !blamesCaller(outcome.result)
}

/** Verdicts on wrong answers. A reply that the server declares partial is not wrong. */
const incorrect: ReadonlySet<Verdict> = new Set(['partial_silent', 'schema_invalid', 'json_invalid'])

/**
 * Verdicts on replies that are wrong for the agent. Correctness is 1 − their share. A reply is not known to be wrong
 * when it could not be checked (`unchecked`), has another shape (`drift`) or declares its own gap.
 */
export const wrongVerdicts: ReadonlySet<Verdict> = new Set(['rpc_error', 'tool_error', ...incorrect])

/**
 * Whether the server's reply was wrong, even when the gateway held the reply back. A fast server with wrong answers is
 * no better than a failing server.
 */
export function isIncorrect(outcome: Outcome): boolean {
  const verdict = verdictIn(outcome)
  return verdict !== undefined && incorrect.has(verdict)
}

/**
 * Blame for an attempt's end, for code that judges servers by attempts.
 *
 * - `good`: the server answered.
 * - `failure`: the server failed.
 * - `wrong`: the server gave a wrong answer.
 * - `refused`: the server refused this request because of its content, credentials, session or rate. Other requests may
 *   still succeed.
 * - `caller_error`: the caller sent a wrong request, which may have caused the end.
 * - `caller_timeout`: the caller's deadline was shorter than the operator's. The server may be slow, or not.
 * - `nothing`: the caller left, or the gateway ended the attempt.
 */
export type Attribution =
  'good' | 'failure' | 'wrong' | 'refused' | 'caller_error' | 'caller_timeout' | 'nothing'

/**
 * Shortest run, in milliseconds, after which a missed deadline is the server's fault. A shorter attempt may have waited
 * elsewhere before.
 */
const LEAST_BLAMED_MS = 1_000

/** Returns who is to blame for the end of an attempt that ran `ranMs` milliseconds. No other function decides blame. */
export function attributionOf(
  outcome: Exclude<Outcome, { kind: 'rejected' }>,
  { deadline, record }: { readonly deadline: Deadline | undefined; readonly record: Known },
  ranMs: Millis,
): Attribution {
  const lesson =
    outcome.kind === 'answered'
      ? attributionOfAnswer(outcome)
      : attributionOfFailure(outcome.error, deadline, ranMs)
  const isBad = lesson === 'failure' || lesson === 'wrong'
  return isBad && record.isInvalid && !isConnectionLost(outcome) ? 'caller_error' : lesson
}

function attributionOfAnswer(outcome: Outcome & { kind: 'answered' }): Attribution {
  if (isIncorrect(outcome)) return 'wrong'
  switch (resultOf(outcome)) {
    case 'rpc_error':
      return 'failure'
    case 'caller_error':
      return isRefusal(outcome.result.status) ? 'refused' : 'caller_error'
    default:
      return 'good'
  }
}

function attributionOfFailure(
  { reason, notStarted }: GatewayError,
  deadline: Deadline | undefined,
  ranMs: Millis,
): Attribution {
  if (notStarted) return 'nothing'
  switch (reason) {
    case 'incorrect_result':
      // A wrong answer came, and a layer below held it back.
      return 'wrong'
    case 'deadline_exceeded':
      if (deadline?.askedFor === true) return 'caller_timeout'
      return ranMs < LEAST_BLAMED_MS ? 'nothing' : 'failure'
    case 'upstream_refused':
    case 'upstream_forbidden':
    case 'upstream_unauthorized':
    case 'upstream_rate_limited':
    case 'session_lost':
    case 'overloaded':
      return 'refused'
    case 'cancelled':
    case 'internal':
    case 'shutting_down':
      return 'nothing'
    default:
      return 'failure'
  }
}

/** Whether a call ended because of a lost or missing connection. Bad arguments cannot cause this failure. */
export function isConnectionLost(outcome: Outcome): boolean {
  if (outcome.kind !== 'failed') return false
  const { reason } = outcome.error
  return reason === 'upstream_unavailable' || reason === 'upstream_disconnected'
}

/** Whether the server never got the call, so a second send cannot run the call twice. */
export function wasNeverDelivered(outcome: Outcome): boolean {
  return outcome.kind === 'failed' && !outcome.error.sent
}

/** Whether a call with this effect may safely run twice. */
export function isRepeatable(effect: Effect): boolean {
  return effect === 'read_only' || effect === 'idempotent'
}

/**
 * Errors of a server that did not run the request: HTTP 401, 403 and 429 precede any processing (RFC 9110, 15.5; RFC
 * 6585, 4). Other statuses may come from the tool: a 404 for a missing object, a 400 for a session that the tool was to
 * book.
 */
const turnedDown: ReadonlySet<string> = new Set<Reason>([
  'upstream_rate_limited',
  'upstream_unauthorized',
  'upstream_forbidden',
])

/** Whether the server declined to run the call. */
export function wasTurnedDown({ reason }: Pick<GatewayError, 'reason'>): boolean {
  return turnedDown.has(reason)
}

/** Whether a call with this error and effect can be sent again without doing its work twice. */
export function mayBeRepeated(error: GatewayError, effect: Effect): boolean {
  return !error.sent || isRepeatable(effect) || wasTurnedDown(error)
}

/** Whether only the agent can find out if a call that must not run twice has run. */
export function isUncertain(error: GatewayError, effect: Effect): boolean {
  return error.retryable && !mayBeRepeated(error, effect)
}

/** Whether a fault took effect on the call. A fault that was decided but not applied does not count. */
export const isHit = (record: CallRecord): boolean =>
  injectedFaults.of(record)?.some(({ status }) => status === 'applied') === true
