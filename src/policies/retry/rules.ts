import type { Call, Outcome, RetryRefusal } from '../../mesh/call.ts'
import { isFailure, isIncorrect, wasNeverDelivered } from '../../mesh/classify.ts'
import { reasons } from '../../mesh/errors.ts'
import type { Scope } from '../../mesh/policy.ts'
import { isInboundRetry } from './next-try.ts'

/**
 * Whether another try might end better. What our own limits rejected is not tried again: they would be met by a
 * retry for every call that they keep away. `incorrect`: whether wrong answers count as failures.
 */
export function isWorthRetrying(outcome: Outcome, incorrect: boolean): boolean {
  switch (outcome.kind) {
    case 'rejected':
      return false
    case 'failed': {
      const { reason } = outcome.error
      // Retryable for the agent, with another deadline; not within this one.
      return reason !== 'deadline_exceeded' && reasons[reason].retryable
    }
    case 'answered':
      return isFailure(outcome) || (incorrect && isIncorrect(outcome) && !asksForInput(outcome))
  }
}

/** Why a failed call must not be sent again, whatever is left of its time and of the budgets. */
export function ruleAgainst(call: Call, outcome: Outcome, scope: Scope): RetryRefusal | undefined {
  if (call.record.firstByteAt !== undefined) return 'streaming'
  if (!isSafe(call, outcome, scope)) return 'unsafe'
  return isInboundRetry(call) ? 'inbound_attempt' : undefined
}

function isSafe(call: Call, outcome: Outcome, scope: Scope): boolean {
  if (wasNeverDelivered(outcome)) return true
  const effect = scope.effectOf(call)
  return effect === 'read_only' || effect === 'idempotent'
}

/** Whether the answer is a question to the agent, which is an answer like any other. */
function asksForInput(outcome: Outcome): boolean {
  if (outcome.kind !== 'answered') return false
  const result = outcome.result.value.result as { resultType?: unknown } | undefined
  return result?.resultType === 'input_required'
}
