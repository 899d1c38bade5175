import type { Call, Outcome } from '../../mesh/call.ts'
import { attributionOf } from '../../mesh/classify.ts'
import type { Millis } from '../../mesh/clock.ts'

/**
 * What an outcome says of the server; a reply that nobody checked says nothing of how correct it is, and one that nobody
 * waited for nothing but that it was not there yet.
 */
export type Judgement = 'neutral' | 'caller_timeout' | 'failed' | 'answered' | 'correct' | 'wrong'

/** Judges the outcome of an attempt that ran for `ranMs`. */
export function judge(outcome: Outcome, call: Call, ranMs: Millis): Judgement {
  if (outcome.kind === 'rejected') return 'neutral'
  switch (attributionOf(outcome, call, ranMs)) {
    case 'good':
      return isCorrect(outcome) ? 'correct' : 'answered'
    case 'outage':
      return 'failed'
    case 'wrong':
      return 'wrong'
    case 'caller_timeout':
      return 'caller_timeout'
    case 'refused':
    case 'caller_error':
    case 'nothing':
      return 'neutral'
  }
}

function isCorrect(outcome: Outcome): boolean {
  return (
    outcome.kind === 'answered' && (outcome.verdict === 'correct' || outcome.verdict === 'partial_declared')
  )
}
