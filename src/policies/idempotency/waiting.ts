import type { Call, Outcome } from '../../mesh/call.ts'
import type { GatewayError } from '../../mesh/errors.ts'
import { shared } from './kept.ts'
import type { Run } from './runs.ts'

/** Waits for the outcome of a call that another caller has started with the same key. */
export function joined(call: Call, { outcome }: Run): Promise<Outcome> {
  call.record.replayed = 'joined'
  return whileThere(
    call,
    outcome.then((ended) => shared(ended, call)),
  )
}

/**
 * The outcome, unless the call is given up first: then why it was. Also a call that still waits for its turn goes on
 * without whoever has left, and may run: they have to be told so.
 */
export function whileThere({ signal }: Call, outcome: Promise<Outcome>, left?: () => void): Promise<Outcome> {
  return new Promise((resolve, reject) => {
    const leave = () => {
      left?.()
      resolve({ kind: 'failed', error: { ...(signal.reason as GatewayError), sent: true } })
    }
    if (signal.aborted) leave()
    else signal.addEventListener('abort', leave)
    const stay = () => signal.removeEventListener('abort', leave)
    outcome.then(resolve, reject).then(stay, stay)
  })
}
