import type { Attributes, HrTime, Span } from '@opentelemetry/api'
import type { CallRecord, Outcome } from '../../mesh/call.ts'
import { EVENT_ATTRIBUTES as A, EVENTS } from './spans.ts'

/** Adds what policies did to a call, in words of their own. */
export function addDecisions(span: Span, record: CallRecord, outcome: Outcome, at: HrTime): void {
  const add = (policy: string | undefined, decision: string, reason?: string) => {
    const attributes: Attributes = { [A.decision]: decision }
    if (policy !== undefined) attributes[A.policy] = policy
    if (reason !== undefined) attributes[A.reason] = reason
    span.addEvent(EVENTS.policy, attributes, at)
  }
  if (record.invalidArguments) add('arguments', 'invalid')
  if (record.infeasible) add('route', 'infeasible')
  if (record.replayed !== 'no') add('idempotency', 'replayed', record.replayed)
  if (record.hedges > 0) add('hedge', 'sent')
  if (record.retries > 0) add('retry', 'sent')
  if (record.retryRefused !== undefined) add('retry', 'refused', record.retryRefused)
  for (const reason of record.overruled ?? []) add(undefined, 'rejected', reason)
  const source = outcome.kind === 'answered' ? outcome.partial?.source : undefined
  if (source === 'fallback' || source === 'stale') add('degrade', 'served', source)
  if (outcome.kind === 'rejected') add(outcome.by, 'rejected', outcome.error.reason)
}
