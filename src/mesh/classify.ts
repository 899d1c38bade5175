import type { CallRecord, Outcome, Verdict } from './call.ts'
import type { Reason } from './errors.ts'

/** What became of a call, as metrics and breakers name it. */
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

/** What is known of a call besides its outcome that bears on whose fault that was. */
type Known = Pick<CallRecord, 'invalidArguments'>

/** What became of a call: an error that a tool tells of arguments which break its schema is its caller's. */
export function resultOfCall(outcome: Outcome, { invalidArguments }: Known): Result {
  const isTold = outcome.kind === 'answered' && outcome.verdict === 'tool_error'
  return invalidArguments && isTold ? 'caller_error' : resultOf(outcome)
}

/** The one truth about what an outcome was. */
export function resultOf(outcome: Outcome): Result {
  switch (outcome.kind) {
    case 'answered': {
      if (outcome.verdict !== 'rpc_error') return 'returned'
      const error = outcome.result.value.error as { code?: unknown } | undefined
      return typeof error?.code === 'number' && callerErrors.has(error.code) ? 'caller_error' : 'rpc_error'
    }
    case 'rejected':
      return 'rejected'
    case 'failed':
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

/** What became of one attempt: a breaker's rejection is none, and whoever stands below it rejects nothing. */
export function attemptOutcomeOf(outcome: Outcome, known: Known): Exclude<Result, 'rejected'> {
  const result = resultOfCall(outcome, known)
  return result === 'rejected' ? 'transport_error' : result
}

/** Ends of a call that say nothing about how well its server is. A rate limit is kept by those who obey it. */
const blameless: ReadonlySet<Reason> = new Set([
  'cancelled',
  'internal',
  'overloaded',
  'shutting_down',
  'upstream_rate_limited',
])

/** Whether an outcome counts against the server that gave it; `isError: true` is an answer, not an outage. */
export function isFailure(outcome: Outcome): boolean {
  if (outcome.kind === 'failed') return !blameless.has(outcome.error.reason)
  return resultOf(outcome) === 'rpc_error'
}

/**
 * A deadline that left an attempt less than this, in milliseconds, says nothing about the server: else one agent in
 * a hurry could open a breaker for everyone.
 */
export const LEAST_BLAMED_MS = 1_000

/** Verdicts that say: it answered, and the answer was wrong. What a server declares to be partial is not. */
const incorrect: ReadonlySet<Verdict> = new Set(['partial_silent', 'schema_invalid', 'json_invalid'])

/** Whether a reply came and was wrong; a server that is fast and wrong is no better than one that fails. */
export function isIncorrect(outcome: Outcome): boolean {
  return outcome.kind === 'answered' && incorrect.has(outcome.verdict)
}

/** Whether the server never got the call, so that sending it again cannot make it run twice. */
export function wasNeverDelivered(outcome: Outcome): boolean {
  return outcome.kind === 'failed' && !outcome.error.sent
}
