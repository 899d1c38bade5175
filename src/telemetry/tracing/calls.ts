import type { Call, Outcome } from '../../mesh/call.ts'
import { CallTrace } from './call-trace.ts'
import type { Head } from './head.ts'
import type { RandomIds } from './ids.ts'
import { parentOf } from './parent.ts'

export interface CallsParts {
  readonly ids: Pick<RandomIds, 'trace'>
  readonly head: Head
}

/** The facts of a call begin here. */
export function beginTrace({ ids, head }: CallsParts, call: Call): void {
  const { record } = call
  // One request to all servers is several calls with one record: they are one trace.
  if (record.span instanceof CallTrace && record.span.open > 0) {
    record.span.open++
    return
  }
  const parent = parentOf(call)
  const traceId = parent?.traceId ?? ids.trace()
  const trace = new CallTrace(traceId, parent, head(traceId, parent))
  record.span = trace
  if (trace.sampled) record.traceId = traceId
}

/** Hands the facts of a request of an agent over to `over`, which must not throw, when its last call has ended. */
export function endTrace(
  call: Call,
  outcome: Outcome,
  over: (call: Call, trace: CallTrace, outcome: Outcome) => void,
): void {
  const trace = call.record.span
  if (!(trace instanceof CallTrace)) return
  // Of several parts, one that went wrong stands for all.
  if (trace.outcome === undefined || trace.outcome.kind === 'answered') trace.outcome = outcome
  if (--trace.open > 0) return
  over(call, trace, trace.outcome)
  trace.forget()
}
