import type { Call, CallRecord, Outcome } from '../../mesh/call.ts'
import type { GatewayError } from '../../mesh/errors.ts'
import { shared } from './kept.ts'
import type { Run } from './runs.ts'

/** Waits for the outcome of a call that another caller has started with the same key. */
export function joined(call: Call, { outcome, record }: Run): Promise<Outcome> {
  call.record.replayed = 'joined'
  return whileThere(call, outcome, record).then((ended) => shared(ended, call))
}

/** The outcome, unless the call is given up first: then why it was. `record` is that of the call that runs. */
export function whileThere(
  { signal }: Call,
  outcome: Promise<Outcome>,
  record: CallRecord,
  left?: () => void,
): Promise<Outcome> {
  return new Promise((resolve, reject) => {
    const leave = () => {
      left?.()
      resolve({ kind: 'failed', error: { ...(signal.reason as GatewayError), sent: record.sent } })
    }
    if (signal.aborted) return leave()
    signal.addEventListener('abort', leave)
    const stay = () => signal.removeEventListener('abort', leave)
    outcome.then(resolve, reject).then(stay, stay)
  })
}
