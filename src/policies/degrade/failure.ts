import type { Call, Outcome } from '../../mesh/call.ts'
import { isFailure } from '../../mesh/classify.ts'
import { isGatewayError, type Reason } from '../../mesh/errors.ts'
import { isObject } from '../../protocol/jsonrpc.ts'
import { isTask } from '../state/final-result.ts'

/** Ends that are the caller's own doing, that concern its rights, or that it has to hear of to go on. */
const notDegraded: ReadonlySet<Reason> = new Set([
  'cancelled',
  'idempotency_conflict',
  'invalid_arguments',
  'session_lost',
  'upstream_unauthorized',
])

/** Longest words of a server that are repeated, in characters. */
const WORDS = 200

/** Why a call needs another answer, as in "search/query failed: breaker open"; undefined when it needs none. */
export function failureOf(call: Call, outcome: Outcome): string | undefined {
  if (isTask(call)) return undefined
  const what = outcome.kind === 'answered' ? errorOf(outcome) : messageOf(call, outcome)
  return what === undefined ? undefined : `${call.server}/${call.tool} failed: ${what}`
}

/** Whether whoever calls has stopped to wait. */
export function isGone({ signal }: Call): boolean {
  return signal.aborted && isGatewayError(signal.reason) && signal.reason.reason === 'cancelled'
}

function messageOf(call: Call, { error }: Exclude<Outcome, { kind: 'answered' }>): string | undefined {
  return notDegraded.has(error.reason) || isGone(call) ? undefined : error.message
}

function errorOf(outcome: Outcome & { kind: 'answered' }): string | undefined {
  if (!isFailure(outcome)) return undefined
  const { error } = outcome.result.value
  const words = isObject(error) && typeof error.message === 'string' ? error.message.slice(0, WORDS) : ''
  return words === '' ? 'the server answered with an error' : words
}
