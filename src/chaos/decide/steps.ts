import type { Millis } from '../../mesh/clock.ts'
import type { Fault } from '../plan/common.ts'
import { drawKeyOf, type Identity } from './call-key.ts'
import { joined } from './canonical.ts'
import type { Facts } from './decide.ts'
import { Recent } from './recent.ts'

/** Most intents that are remembered; one that comes back later counts as new. */
const MAX_INTENTS = 50_000

/** How long faults of a domain share a fate where no intent says so, in milliseconds. */
const DOMAIN_SLOT_MS = 1_000

/** Numbers the steps that bursts advance by, and what failure domains go by: for one run. */
export class Steps {
  readonly #startedAt: Millis
  /** By what faults draw as: an unrelated fault must not move the numbers of another. */
  readonly #intents = new Map<string, { next: number; readonly known: Recent<number> }>()

  /** `startedAt`: when the run began, on the monotonic clock. */
  constructor(startedAt: Millis) {
    this.#startedAt = startedAt
  }

  /** The step of a fault's burst chain that a call falls into. */
  stepOf(fault: Fault, subject: string, intent: string | undefined, now: Millis): Facts['step'] {
    const burst = fault.when?.burst
    if (burst === undefined) return undefined
    if (burst.per === 'intent' && intent !== undefined) {
      return { per: 'intent', index: this.#indexOf(subject, intent) }
    }
    return { per: 'slot', index: this.#slot(now, burst.slot) }
  }

  /** What a draw about a call is keyed with: in a domain, what all that fail together have in common. */
  drawKey(fault: Fault, identity: Identity, attempt: number, now: Millis): string {
    if (fault.domain === undefined) return drawKeyOf(identity, attempt, fault.sticky)
    const { intent } = identity
    return intent === undefined ? joined('slot', this.#slot(now, DOMAIN_SLOT_MS)) : joined('intent', intent)
  }

  #slot(now: Millis, length: Millis): number {
    return Math.max(0, Math.floor((now - this.#startedAt) / length))
  }

  #indexOf(subject: string, intent: string): number {
    let order = this.#intents.get(subject)
    if (order === undefined) this.#intents.set(subject, (order = { next: 0, known: new Recent(MAX_INTENTS) }))
    const known = order.known.get(intent)
    if (known !== undefined) return known
    order.known.set(intent, order.next)
    return order.next++
  }
}
