import { derive, type Call, type Layer, type Outcome } from '../../mesh/call.ts'
import type { Clock } from '../../mesh/clock.ts'
import { AttemptFacts, brokenOff, CallTrace } from './call-trace.ts'
import type { Head } from './head.ts'
import type { RandomIds } from './ids.ts'
import { parentOf } from './parent.ts'
import { stampHeaders } from './stamp.ts'

export interface LayerParts {
  readonly clock: Clock
  readonly ids: RandomIds
  readonly head: Head
  /** Told of each request of an agent that is over. Must not throw. */
  readonly over: (call: Call, trace: CallTrace, outcome: Outcome) => void
}

/** The outermost layer of a call: its facts begin here, and are handed over when it has ended. */
export function serverLayer({ ids, head, over }: LayerParts): Layer {
  function begin(call: Call): CallTrace {
    const { record } = call
    // One request to all servers is several calls with one record: they are one trace.
    if (record.span instanceof CallTrace && record.span.open > 0) {
      record.span.open++
      return record.span
    }
    const parent = parentOf(call)
    const traceId = parent?.traceId ?? ids.trace()
    const trace = new CallTrace(traceId, parent, head(traceId, parent))
    record.span = trace
    if (trace.sampled) record.traceId = traceId
    return trace
  }

  function end(call: Call, trace: CallTrace, outcome: Outcome): void {
    // Of several parts, one that went wrong stands for all.
    if (trace.outcome === undefined || trace.outcome.kind === 'answered') trace.outcome = outcome
    if (--trace.open > 0) return
    over(call, trace, trace.outcome)
    trace.forget()
  }

  return (next) => (call) => {
    const trace = begin(call)
    const ended = (outcome: Outcome) => {
      end(call, trace, outcome)
      return outcome
    }
    const broke = (cause: unknown) => {
      end(call, trace, brokenOff)
      throw cause
    }
    try {
      return next(call).then(ended, broke)
    } catch (cause) {
      return broke(cause)
    }
  }
}

/** Notes each attempt, and gives it the headers by which its server becomes a part of the trace. */
export function attemptLayer({ clock, ids }: Pick<LayerParts, 'clock' | 'ids'>): Layer {
  return (next) => (call) => {
    const { record } = call
    const trace = record.span
    if (!(trace instanceof CallTrace)) return next(call)
    const spanId = ids.span()
    const facts = new AttemptFacts(spanId, call, clock.now())
    trace.attempts.push(facts)
    const ended = (outcome: Outcome) => {
      facts.endedAt = clock.now()
      facts.outcome = outcome
      facts.replica ??= record.replica
      return outcome
    }
    const broke = (cause: unknown) => {
      ended(brokenOff)
      throw cause
    }
    return next(derive(call, { headers: stampHeaders(call.headers, trace, spanId) })).then(ended, broke)
  }
}
