import { derive, type Call, type Outcome } from '../../mesh/call.ts'
import type { Clock } from '../../mesh/clock.ts'
import { AttemptFacts, CallTrace } from './call-trace.ts'
import type { RandomIds } from './ids.ts'
import { stampHeaders } from './stamp.ts'

export interface AttemptsParts {
  readonly clock: Clock
  readonly ids: Pick<RandomIds, 'span'>
}

/** Notes a try that begins, and gives it the headers by which its server becomes a part of the trace. */
export function beginAttempt({ clock, ids }: AttemptsParts, call: Call): Call {
  const trace = call.record.span
  if (!(trace instanceof CallTrace)) return call
  // Its caller has gone, and the spans are sent: there will be none for it, so its server belongs under the call's.
  if (trace.open === 0) return stampedBy(call, trace, trace.spanId ?? ids.span())
  const spanId = ids.span()
  const outgoing = stampedBy(call, trace, spanId)
  trace.attempts.push(new AttemptFacts(spanId, outgoing, clock.now()))
  return outgoing
}

/** Notes how a try has ended, unless its call was over before; `outgoing` is what it was sent as. */
export function endAttempt({ clock }: Pick<AttemptsParts, 'clock'>, outgoing: Call, outcome: Outcome): void {
  const { span: trace, replica } = outgoing.record
  if (!(trace instanceof CallTrace)) return
  const facts = trace.attempts.find(({ call }) => call === outgoing)
  if (facts === undefined) return
  facts.endedAt = clock.now()
  facts.outcome = outcome
  facts.replica ??= replica
}

function stampedBy(call: Call, trace: CallTrace, spanId: string): Call {
  return derive(call, { headers: stampHeaders(call.headers, trace, spanId) })
}
