import type { Dice } from '../../mesh/dice.ts'
import type { Fault } from '../plan/common.ts'

/** All that a decision rests on, besides the plan and its seed: it is journaled, so that it can be made again. */
export interface Facts {
  /** The key of the draw. */
  readonly drawKey: string
  /** Which of the calls that match this is, by arrival, from 1. */
  readonly count: number
  /** How long the fault had been armed, in milliseconds. */
  readonly sinceMs: number
  /** The step of its burst chain. */
  readonly step?: { readonly per: 'slot' | 'intent'; readonly index: number } | undefined
}

export interface Decision {
  /** The draw: it hits when this lies below the rate. In bursts, the draw of the chain's step. */
  readonly u: number
  readonly because: 'rate' | 'schedule' | undefined
}

/** Decides about calls, the same way in every process, as far as the plan goes; limits are others' business. */
export type Decider = (facts: Facts) => Decision

/** The decider of a fault. */
export function decider(fault: Fault, dice: Dice): Decider {
  const { rate, when = {} } = fault
  const { onCall, afterCalls, everyNth, window, burst } = when
  const subject = drawnAs(fault)
  const purpose = `${subject}/fire`
  const chains = burst && {
    slot: new Bursts(dice, `${subject}/burst.slot`, rate, burst.meanLength),
    intent: new Bursts(dice, `${subject}/burst.intent`, rate, burst.meanLength),
  }

  function isDue({ count, sinceMs }: Facts): boolean {
    if (onCall !== undefined && count !== onCall) return false
    if (afterCalls !== undefined && count <= afterCalls) return false
    if (everyNth !== undefined && count % everyNth !== 0) return false
    return window === undefined || (sinceMs >= window.from && sinceMs < (window.to ?? Infinity))
  }

  return (facts) => {
    const step = chains && facts.step ? chains[facts.step.per].at(facts.step.index) : undefined
    const u = step?.u ?? dice(facts.drawKey, purpose)
    if (!isDue(facts)) return { u, because: 'schedule' }
    return { u, because: (step?.on ?? u < rate) ? undefined : 'rate' }
  }
}

/** The name that a fault draws as. Its own cannot begin like that of a domain. */
export const drawnAs = ({ name, domain }: Fault): string => (domain === undefined ? name : `@${domain}`)

/** Whether the order in which calls come, or the time, has a say in a fault's decisions. */
export function dependsOnOrder({ domain, when }: Fault): boolean {
  const { onCall, afterCalls, everyNth, window, burst } = when ?? {}
  return [onCall, afterCalls, everyNth, window, burst, domain].some((part) => part !== undefined)
}

/** Every so many steps the state is drawn afresh, so that no step is further than this from one that is known. */
const BLOCK = 4096

/** What a chain says of one step. */
interface Step {
  readonly on: boolean
  /** The draw that decided it. */
  readonly u: number
}

/**
 * A two-state chain (Gilbert): on with probability `rate` over time, for `meanLength` steps on average. It leaves
 * a burst with 1 / meanLength, enters one with rate / (meanLength · (1 − rate)), and begins in its long-term state.
 * The draw of a step depends on its index only, so that any step can be asked for, in any order, in any process.
 */
export class Bursts {
  readonly #draw: (index: number) => number
  readonly #rate: number
  readonly #leave: number
  readonly #enter: number
  #index = -1
  #on = false

  /** `purpose` sets the chain apart from others; chains of one purpose share their draws. */
  constructor(dice: Dice, purpose: string, rate: number, meanLength: number) {
    this.#draw = (index) => dice(String(index), purpose)
    this.#rate = rate
    this.#leave = rate === 1 ? 0 : 1 / meanLength
    this.#enter = rate === 1 ? 1 : rate / (meanLength * (1 - rate))
  }

  at(index: number): Step {
    const block = index - (index % BLOCK)
    if (index < this.#index || this.#index < block) {
      this.#index = block
      this.#on = this.#draw(block) < this.#rate
    }
    while (this.#index < index) {
      const u = this.#draw(++this.#index)
      this.#on = this.#on ? u >= this.#leave : u < this.#enter
    }
    return { on: this.#on, u: this.#draw(index) }
  }
}
