import type { CallRecord, Outcome } from '../../mesh/call.ts'
import { isIncorrect, resultOfCall } from '../../mesh/classify.ts'

/**
 * Whether a call went wrong as its agent sees it, whoever is to blame: no reply, an error, a wrong reply, or a tool
 * that says of itself that it failed. What the agent itself gave up or asked wrongly did not, and neither did what is
 * declared to be partial.
 */
export function wentWrong(outcome: Outcome, record: CallRecord): boolean {
  const result = resultOfCall(outcome, record)
  if (result === 'cancelled' || result === 'caller_error') return false
  if (outcome.kind !== 'answered' || result === 'rpc_error') return true
  return outcome.verdict === 'tool_error' || isIncorrect(outcome)
}
