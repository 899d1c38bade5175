import type { Call, CallRecord, Layer, Outcome } from '../mesh/call.ts'
import { attemptOutcomeOf, verdictIn } from '../mesh/classify.ts'
import type { Clock, Millis } from '../mesh/clock.ts'
import type { Metrics } from './metrics.ts'
import type { IsListed } from './metrics/tool-series.ts'
import type { Recorder } from './recording/recorder.ts'
import { acceptedTask } from './task-calls.ts'
import type { Tracing } from './tracing.ts'
import { brokenOff } from './tracing/call-trace.ts'

export interface ObserveAttemptParts {
  readonly clock: Clock
  readonly metrics: Pick<Metrics, 'tools' | 'operations'>
  readonly isListed: IsListed
  readonly tracing: Pick<Tracing, 'beginAttempt' | 'endAttempt'>
  readonly recorder: Pick<Recorder, 'attempt'>
}

/**
 * Counts every try at a server, with its verdict, tells tracing and the recorder of it, and notes in the call's record how long
 * tries were under way.
 */
export function observeAttempt({ clock, metrics, isListed, tracing, recorder }: ObserveAttemptParts): Layer {
  const { operations } = metrics

  function over(outgoing: Call, outcome: Outcome): void {
    const { record } = outgoing
    tracing.endAttempt(outgoing, outcome)
    if (--record.upstream === 0) record.upstreamMs += clock.now() - record.upstreamSince
  }

  function count(outgoing: Call, outcome: Outcome, startedAt: Millis): void {
    const { server, tool, record } = outgoing
    const series = tool === undefined ? undefined : metrics.tools.of(server, tool, isListed)
    if (operations !== undefined) {
      const lanes = series?.operations ?? operations.of(outgoing)
      operations.attempted(lanes, outgoing, outcome, (clock.now() - startedAt) / 1_000)
    }
    if (series === undefined) return
    if (!record.isOver && acceptedTask(outgoing, outcome) !== undefined) {
      record.acceptedAttempts++
      return
    }
    const verdict = verdictIn(outcome) ?? ''
    series.countAttempt(attemptOutcomeOf(outcome, record), verdict, record.arm)
  }

  return (next) => (call) => {
    const { tool, record } = call
    const startedAt = operations === undefined && record.upstream > 0 ? 0 : clock.now()
    if (record.upstream++ === 0) record.upstreamSince = startedAt
    const outgoing = tracing.beginAttempt(call)
    const recorded = record.recording === undefined ? undefined : recorder.attempt(call)
    const ended = (outcome: Outcome) => {
      over(outgoing, outcome)
      recorded?.(outcome)
      if (tool !== undefined || operations !== undefined) count(outgoing, outcome, startedAt)
      return outcome
    }
    // A defect of ours says nothing about the tool.
    const broke = (cause: unknown): never => {
      over(outgoing, brokenOff)
      throw cause
    }
    try {
      return next(outgoing).then(ended, broke)
    } catch (cause) {
      return broke(cause)
    }
  }
}

/** How long tries at a server were under way until now, in milliseconds; a hedge's loser may still be. */
export function upstreamMsOf(record: CallRecord, now: Millis): Millis {
  return record.upstreamMs + (record.upstream > 0 ? now - record.upstreamSince : 0)
}
