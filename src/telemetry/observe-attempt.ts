import type { CallRecord, Layer } from '../mesh/call.ts'
import { attemptOutcomeOf } from '../mesh/classify.ts'
import type { Clock, Millis } from '../mesh/clock.ts'
import type { Metrics } from './metrics.ts'
import type { IsListed } from './metrics/tool-series.ts'

export interface ObserveAttemptParts {
  readonly clock: Clock
  readonly metrics: Pick<Metrics, 'tools'>
  readonly isListed: IsListed
}

/** Counts every try at a server, with its verdict, and notes in the call's record how long tries were under way. */
export function observeAttempt({ clock, metrics, isListed }: ObserveAttemptParts): Layer {
  return (next) => (call) => {
    const { server, tool, record } = call
    if (record.upstream++ === 0) record.upstreamSince = clock.now()
    return next(call).then((outcome) => {
      if (--record.upstream === 0) record.upstreamMs += clock.now() - record.upstreamSince
      if (tool === undefined) return outcome
      const verdict = outcome.kind === 'answered' ? outcome.verdict : ''
      metrics.tools.of(server, tool, isListed).countAttempt(attemptOutcomeOf(outcome), verdict)
      return outcome
    })
  }
}

/** How long tries at a server were under way until now, in milliseconds; a hedge's loser may still be. */
export function upstreamMsOf(record: CallRecord, now: Millis): Millis {
  return record.upstreamMs + (record.upstream > 0 ? now - record.upstreamSince : 0)
}
