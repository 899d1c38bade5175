import type { Attributes, HrTime, Span } from '@opentelemetry/api'
import type { CallRecord, InjectedFault, Outcome } from '../../mesh/call.ts'
import { EVENT_ATTRIBUTES as A, EVENTS } from './spans.ts'

/** Adds a fault to the span that it was aimed at. */
export function addFault(span: Span, { name, type, side, status, attempt }: InjectedFault, at: HrTime): void {
  const attributes: Attributes = {
    [A.fault]: name,
    [A.faultType]: type,
    [A.faultSide]: side,
    [A.faultStatus]: status,
    [A.faultAttempt]: attempt,
  }
  span.addEvent(EVENTS.fault, attributes, at)
}

/** Adds what policies did to a call, in words of their own. */
export function addDecisions(span: Span, record: CallRecord, outcome: Outcome, at: HrTime): void {
  const add = (policy: string, decision: string, reason?: string) => {
    const attributes: Attributes = { [A.policy]: policy, [A.decision]: decision }
    if (reason !== undefined) attributes[A.reason] = reason
    span.addEvent(EVENTS.policy, attributes, at)
  }
  if (record.invalidArguments) add('arguments', 'invalid')
  if (record.infeasible) add('route', 'infeasible')
  if (record.replayed !== 'no') add('idempotency', 'replayed', record.replayed)
  if (record.hedges > 0) add('hedge', 'sent')
  if (record.retryRefused !== undefined) add('retry', 'refused', record.retryRefused)
  if (outcome.kind === 'rejected') add(outcome.by, 'rejected', outcome.error.reason)
}
