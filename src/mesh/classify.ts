import type { CallRecord, CallResult, Deadline, Outcome, Verdict } from './call.ts'
import type { Millis } from './clock.ts'
import type { GatewayError, Reason } from './errors.ts'
import type { Effect } from './policy.ts'

/** The result of a call, as metrics name it. */
export type Result =
  'returned' | 'rpc_error' | 'caller_error' | 'timeout' | 'transport_error' | 'cancelled' | 'rejected'

/** JSON-RPC codes with which a server says that the caller was wrong, not the server. */
const callerErrors = new Set([-32700, -32600, -32601, -32602, -32002, -32020, -32021, -32022, -32042])

/** The verdict on a well-formed response. */
export function verdictOf(response: Readonly<Record<string, unknown>>): Verdict {
  if ('error' in response) return 'rpc_error'
  const result = response.result as { isError?: unknown } | undefined
  return result?.isError === true ? 'tool_error' : 'unchecked'
}

/** The verdict on the reply of a call, whether its agent got the reply or an error in its place; undefined when no reply came. */
export function verdictIn(outcome: Outcome): Verdict | undefined {
  return outcome.kind === 'rejected' ? undefined : outcome.verdict
}

/** The fact about a call, besides its outcome, that bears on whose fault the outcome was. */
type Known = Pick<CallRecord, 'isInvalid'>

/** Returns the result of a call. A tool's error about arguments that break its schema counts as the caller's error. */
export function resultOfCall(outcome: Outcome, { isInvalid }: Known): Result {
  const isTold = outcome.kind === 'answered' && outcome.verdict === 'tool_error'
  return isInvalid && isTold ? 'caller_error' : resultOf(outcome)
}

/** The result of an outcome: the only place that decides it. */
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
 * Whether a call went wrong as its agent sees it, whoever is to blame: no reply, an error, a wrong reply, or a tool
 * that says of itself that it failed. A call that the agent itself gave up or asked wrongly did not go wrong, and
 * neither did a call whose reply is declared to be partial.
 */
export function wentWrong(outcome: Outcome, record: Known): boolean {
  const result = resultOfCall(outcome, record)
  if (result === 'cancelled' || result === 'caller_error') return false
  return outcome.kind !== 'answered' || wrongVerdicts.has(outcome.verdict)
}

/** How many calls came to what: the ratios of all reports are made of these. */
export interface CallCounts {
  /** Calls that have ended. */
  calls: number
  /** Calls that say something of servers and policies: their agent neither gave them up nor made a mistake. */
  valid: number
  /** Valid ones that the gateway did not reject. */
  eligible: number
  /** Eligible ones of which a reply came. */
  returned: number
  /** Returned calls that did not go wrong, as their agent saw it. */
  good: number
  /** Good ones that nobody could check. */
  unchecked: number
}

/** Counts a call that is over; true when it went wrong. */
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

/** Whether an error says by its JSON-RPC code that the caller was wrong. */
function blamesCaller({ value }: CallResult): boolean {
  const error = value.error as { code?: unknown } | undefined
  return typeof error?.code === 'number' && callerErrors.has(error.code)
}

/** Whether the caller is to blame for an error; a server that says by its status that it failed has failed, whatever its code. */
const isCallersFault = (result: CallResult) =>
  result.status < 500 && (blamesCaller(result) || isRefusal(result.status))

/** HTTP 4xx is about one request; but for a server that took too long (408), or limits the rate (429). */
function isRefusal(status: number): boolean {
  return status >= 400 && status < 500 && status !== 408 && status !== 429
}

/** Returns the result of one attempt. A breaker's rejection is no attempt, and layers below the breaker reject nothing. */
export function attemptOutcomeOf(outcome: Outcome, known: Known): Exclude<Result, 'rejected'> {
  const result = resultOfCall(outcome, known)
  return result === 'rejected' ? 'transport_error' : result
}

/**
 * Whether a call that was sent came to nothing, and another try or another answer may be of use: there is no answer, or
 * it is an error whose code does not blame the caller. `isError: true` is an answer like any other. `attributionOf`
 * says whose fault the failure was: a server that refuses one request may take it the next time.
 */
export function isFailure(outcome: Outcome): boolean {
  if (outcome.kind !== 'answered') return outcome.kind === 'failed'
  return outcome.verdict === 'rpc_error' && !blamesCaller(outcome.result)
}

/** Verdicts that say: it answered, and the answer was wrong. A reply that the server declares to be partial is not wrong. */
const incorrect: ReadonlySet<Verdict> = new Set(['partial_silent', 'schema_invalid', 'json_invalid'])

/**
 * Verdicts on replies that are wrong for their agent. Correctness is 1 − the share of them: a reply that nobody could check
 * (`unchecked`), has another shape (`drift`) or says itself what is missing is not known to be wrong.
 */
export const wrongVerdicts: ReadonlySet<Verdict> = new Set(['rpc_error', 'tool_error', ...incorrect])

/** Whether a reply came and was wrong, held back or not; a server that is fast and wrong is no better than one that fails. */
export function isIncorrect(outcome: Outcome): boolean {
  const verdict = verdictIn(outcome)
  return verdict !== undefined && incorrect.has(verdict)
}

/**
 * The meaning of an attempt's end for its server, for code that judges servers by attempts.
 *
 * - `good`: it answered.
 * - `failure`: it failed.
 * - `wrong`: it answered, and the answer was wrong.
 * - `refused`: it turned this request down, which says nothing of the requests of others: for what it asked, for its
 *   credentials or session, or for the rate.
 * - `caller_error`: the caller was wrong, and may have been the cause of whatever happened.
 * - `caller_timeout`: the caller did not want to wait as long as the operator would have: it may be slow, or not.
 * - `nothing`: the caller left, or the gateway ended it.
 */
export type Attribution =
  'good' | 'failure' | 'wrong' | 'refused' | 'caller_error' | 'caller_timeout' | 'nothing'

/**
 * A deadline that left an attempt less than this, in milliseconds, says nothing about the server, whoever set it: the
 * call may have waited elsewhere until then.
 */
const LEAST_BLAMED_MS = 1_000

/** The one place that decides whom the end of an attempt is to be laid to; it ran for `ranMs`, in milliseconds. */
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
      // It came, and a layer below held it back because it was wrong.
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

/** Whether a call ended as calls do when there is nobody at the other end: arguments can make a server fail in many ways, but not in this one. */
export function isConnectionLost(outcome: Outcome): boolean {
  if (outcome.kind !== 'failed') return false
  const { reason } = outcome.error
  return reason === 'upstream_unavailable' || reason === 'upstream_disconnected'
}

/** Whether the server never got the call, so that sending it again cannot make it run twice. */
export function wasNeverDelivered(outcome: Outcome): boolean {
  return outcome.kind === 'failed' && !outcome.error.sent
}

/** Whether a call of this effect does no harm when it runs twice. */
export function isRepeatable(effect: Effect): boolean {
  return effect === 'read_only' || effect === 'idempotent'
}

/**
 * Ends with which a server says that it did not run what it got: HTTP 401, 403 and 429 come before any processing
 * (RFC 9110, 15.5; RFC 6585, 4). Another status may come of the tool itself: a 404 of what it was to change, a 400
 * of a session that it was to book.
 */
const turnedDown: ReadonlySet<string> = new Set<Reason>([
  'upstream_rate_limited',
  'upstream_unauthorized',
  'upstream_forbidden',
])

/** Whether a call ended because its server would not run it. */
export function wasTurnedDown({ reason }: GatewayError): boolean {
  return turnedDown.has(reason)
}

/** Whether a call of this effect that ended like this can be sent again without doing twice what it does. */
export function mayBeRepeated(error: GatewayError, effect: Effect): boolean {
  return !error.sent || isRepeatable(effect) || wasTurnedDown(error)
}
