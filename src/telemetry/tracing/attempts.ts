import { derive, type Call, type Layer, type Outcome } from '../../mesh/call.ts'
import type { Clock } from '../../mesh/clock.ts'
import { AttemptFacts, brokenOff, CallTrace } from './call-trace.ts'
import type { RandomIds } from './ids.ts'
import { stampHeaders } from './stamp.ts'

export interface AttemptsParts {
  readonly clock: Clock
  readonly ids: Pick<RandomIds, 'span'>
}

/** Notes each attempt, and gives it the headers by which its server becomes a part of the trace. */
export function attemptLayer({ clock, ids }: AttemptsParts): Layer {
  const stampedBy = (call: Call, trace: CallTrace, spanId: string) =>
    derive(call, { headers: stampHeaders(call.headers, trace, spanId) })

  return (next) => (call) => {
    const { record } = call
    const trace = record.span
    if (!(trace instanceof CallTrace)) return next(call)
    // Its caller has gone, and the spans are sent: there will be none for it, so its server belongs under the call's.
    if (trace.open === 0) return next(stampedBy(call, trace, trace.spanId ?? ids.span()))
    const facts = new AttemptFacts(ids.span(), call, clock.now())
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
    try {
      return next(stampedBy(call, trace, facts.spanId)).then(ended, broke)
    } catch (cause) {
      return broke(cause)
    }
  }
}
