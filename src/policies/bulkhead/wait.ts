import type { Call, Outcome } from '../../mesh/call.ts'
import type { ExpiryQueue } from '../../mesh/expiry.ts'
import { givenUp } from '../state/given-up.ts'
import type { Lanes, Waiter } from './lanes.ts'

/** A call that has to wait, and what may come of it. */
export interface Waiting extends Pick<Waiter, 'order' | 'tool' | 'tenant'> {
  readonly call: Call
  /** Takes the slot that it gets in the end. */
  start(): Promise<Outcome>
  full(): Outcome
  waitedInVain(): Outcome
}

/** The end of a call that was given up while it waited. */
export const leftWaiting = (call: Call): Outcome => givenUp(call, 'cancelled while it waited for a slot')

/** Lets a call wait for a slot, for as long as `expiries` allow and nobody gives it up. */
export function waitIn(lanes: Lanes, expiries: ExpiryQueue, waiting: Waiting): Promise<Outcome> {
  const { call, order, tool, tenant } = waiting
  return new Promise((resolve) => {
    const leave = () => {
      lanes.remove(waiter)
      expiries.remove(expiry)
      call.signal.removeEventListener('abort', aborted)
    }
    const end = (outcome: Outcome) => {
      leave()
      resolve(outcome)
    }
    const aborted = () => end(leftWaiting(call))
    const waiter: Waiter = {
      at: call.deadline?.at ?? Infinity,
      order,
      place: -1,
      tool,
      tenant,
      start() {
        leave()
        // In a promise, so that a defect further in meets this call and not the one that gave its slot back.
        resolve(new Promise((settle) => settle(waiting.start())))
      },
      displace: () => end(waiting.full()),
    }
    const expiry = expiries.add(() => end(waiting.waitedInVain()))
    call.signal.addEventListener('abort', aborted)
    lanes.add(waiter)
  })
}
