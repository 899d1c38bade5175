import type { Layer, Outcome } from '../../../src/mesh/call.ts'
import { type InjectedFault, injectedFaults } from '../../../src/mesh/injected.ts'

/** A fault that hits one attempt and replaces the call. */
export interface OneFault {
  readonly attempt: number
  readonly outcome: Outcome
}

/** The layer that applies the fault. */
export function faultLayer(fault: OneFault): Layer {
  return (next) => (call) => {
    if (call.attempt !== fault.attempt) return next(call)
    const { attempt } = call
    const injected: InjectedFault = {
      name: 'no-way',
      type: 'connection',
      side: 'upstream',
      attempt,
      status: 'applied',
    }
    call.record.attempts++
    injectedFaults.note(call.record, [injected])
    return Promise.resolve(fault.outcome)
  }
}
