import type { Call, Outcome, Service } from '../../../src/mesh/call.ts'
import { gatewayError, type Reason } from '../../../src/mesh/errors.ts'
import type { Clock } from '../../../src/mesh/clock.ts'
import type { ManualClock } from '../../support/manual-clock.ts'
import { bulkheadFull } from '../../../src/policies/bulkhead.ts'

export const answer: Outcome & { kind: 'answered' } = {
  kind: 'answered',
  result: { text: '{}', value: { result: {} }, status: 200 },
  verdict: 'correct',
}

/** A failed attempt; by default the failure came after sending. */
export function failed(
  reason: Reason,
  { sent = true, retryAfterMs }: { sent?: boolean; retryAfterMs?: number } = {},
): Outcome {
  return { kind: 'failed', error: gatewayError(reason, reason, { sent, retryAfterMs }) }
}

/** A JSON-RPC error of the server. */
export function rpcError(code: number): Outcome {
  const result = { text: '{}', value: { error: { code, message: 'no' } }, status: 200 }
  return { kind: 'answered', result, verdict: 'rpc_error' }
}

export const rejected: Outcome = {
  kind: 'rejected',
  error: gatewayError(bulkheadFull, 'bulkhead full (8 of 8)'),
  by: 'bulkhead',
}

/** A server that ends its calls by a script and repeats the last outcome; `calls` lists the calls. */
export function scripted(...outcomes: Outcome[]): { service: Service; calls: Call[] } {
  const calls: Call[] = []
  const service: Service = (call) => {
    const outcome = outcomes[Math.min(calls.length, outcomes.length - 1)] as Outcome
    calls.push(call)
    call.record.attempts++
    if (outcome.kind === 'failed' && outcome.error.sent) call.record.sent = true
    return Promise.resolve(outcome)
  }
  return { service, calls }
}

/** A server that takes `ms` for a call, unless the caller gives up. */
export function slow(clock: Clock, ms: number, outcome: () => Outcome = () => answer): Service {
  return (call) => {
    call.record.attempts++
    call.record.sent = true
    return clock.sleep(ms, call.signal).then(outcome, (error) => ({ kind: 'failed', error }))
  }
}

/** Lets new calls reach their first timer, then advances the clock by `ms` in all. */
export async function pass(clock: ManualClock, ms: number): Promise<void> {
  await clock.advance(0)
  await clock.advance(ms)
}
