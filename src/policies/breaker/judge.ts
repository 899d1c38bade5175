import type { Outcome } from '../../mesh/call.ts'
import { isFailure, isIncorrect, LEAST_BLAMED_MS, resultOf } from '../../mesh/classify.ts'
import type { Millis } from '../../mesh/clock.ts'

/** What an outcome says of the server; a reply that nobody checked says nothing of how correct it is. */
export type Judgement = 'neutral' | 'failed' | 'answered' | 'correct' | 'wrong'

/** Judges the outcome of an attempt that ran for `ranMs`. */
export function judge(outcome: Outcome, ranMs: Millis): Judgement {
  switch (outcome.kind) {
    case 'rejected':
      return 'neutral'
    case 'answered':
      if (isIncorrect(outcome)) return 'wrong'
      if (outcome.verdict === 'correct' || outcome.verdict === 'partial_declared') return 'correct'
      if (isFailure(outcome)) return 'failed'
      return resultOf(outcome) === 'caller_error' ? 'neutral' : 'answered'
    case 'failed':
      // It came, and a layer below held it back because it was wrong.
      if (outcome.error.reason === 'incorrect_result') return 'wrong'
      if (outcome.error.reason === 'deadline_exceeded' && ranMs < LEAST_BLAMED_MS) return 'neutral'
      return isFailure(outcome) ? 'failed' : 'neutral'
  }
}
