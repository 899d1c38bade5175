import type { KeyedRandom } from '../../mesh/keyed-random.ts'
import type { Fault } from '../plan/common.ts'
import { hash } from 'node:crypto'

export interface Step {
  /** The unit of a step; see `when.burst`. */
  readonly per: 'slot' | 'call' | 'intent'
  /** Name of the chain, for faults with several chains: the calls' task, or the common part of numbered task names. */
  readonly of?: string | undefined
  readonly index: number
  /** Number of the attempt at a call, from 1, where steps are calls; default 1. */
  readonly attempt?: number
}

/** All input of a decision, besides the plan and its seed. Journaled, so the decision can be made again. */
export interface Facts {
  readonly drawKey: string
  /** Key of the draw about a whole task; undefined for faults without `match.tasks`. */
  readonly task?: string | undefined
  /** Number of this call among the matching calls, by arrival, from 1. */
  readonly count: number
  /** Time since arming, in milliseconds. */
  readonly sinceMs: number
  readonly step?: Step | undefined
}

export interface Decision {
  /** The draw: the fault hits when `u` is below `rate`. In bursts, the draw of the chain's step. */
  readonly u: number
  /** The rate at the time of the call. When the draw spares the whole task, the share of tasks to hit. */
  readonly rate: number
  readonly because: 'rate' | 'schedule' | 'task' | undefined
}

/**
 * Decides whether a fault hits a call. Equal facts give equal decisions in every process. Limits are checked elsewhere.
 */
export type Decider = (facts: Facts) => Decision

export function decider(fault: Fault, random: KeyedRandom): Decider {
  const { when = {} } = fault
  const { onCall, afterCalls, everyNth, window, burst, ramp } = when
  const tasks = fault.match?.tasks
  const subject = drawnAs(fault)
  const purpose = `${subject}/fire`
  const chain = burst && new Bursts(random, `${subject}/burst`, fault.rate, burst.meanLength)

  function isDue({ count, sinceMs }: Facts): boolean {
    if (onCall !== undefined && count !== onCall) return false
    if (afterCalls !== undefined && count <= afterCalls) return false
    if (everyNth !== undefined && count % everyNth !== 0) return false
    return window === undefined || (sinceMs >= window.from && sinceMs < (window.to ?? Infinity))
  }

  function rateAt(sinceMs: number): number {
    if (ramp === undefined || sinceMs >= ramp.over) return fault.rate
    return ramp.from + ((fault.rate - ramp.from) * Math.max(0, sinceMs)) / ramp.over
  }

  return (facts) => {
    if (tasks !== undefined) {
      const u = random(facts.task ?? facts.drawKey, `${subject}/task`)
      if (u >= tasks) return { u, rate: tasks, because: 'task' }
    }
    const rate = rateAt(facts.sinceMs)
    const step = facts.step && chain?.at(facts.step)
    const u = step?.u ?? random(facts.drawKey, purpose)
    if (!isDue(facts)) return { u, rate, because: 'schedule' }
    return { u, rate, because: (step?.on ?? u < rate) ? undefined : 'rate' }
  }
}

/**
 * Returns the name under which a fault draws: its own name, or the name that all faults of its domain share. Names of
 * faults cannot begin with `@`.
 */
export const drawnAs = ({ name, domain }: Fault): string => (domain === undefined ? name : `@${domain}`)

/** Returns true when the order of calls, or the time, affects a fault's decisions about all calls. */
export function dependsOnOrder({ domain, when }: Fault): boolean {
  const { onCall, afterCalls, everyNth, window, burst, ramp } = when ?? {}
  const isBySlot = burst !== undefined && burst.per === 'slot'
  return isBySlot || [onCall, afterCalls, everyNth, window, ramp, domain].some((part) => part !== undefined)
}

/** Number of steps in a block. The state at the start of a block does not depend on earlier steps. */
const BLOCK = 4096

/**
 * A two-state chain (Gilbert): on with probability `rate` over time, for `meanLength` steps on average. The chain
 * leaves a burst with probability 1 / meanLength, and enters a burst with probability rate / (meanLength · (1 − rate)).
 * It begins as if it had run for a long time. The draw of a step depends only on its chain and index, so steps can be
 * queried in any order, in any process.
 */
export class Bursts {
  readonly #random: KeyedRandom
  readonly #purpose: string
  readonly #rate: number
  /** Probabilities of being on after a step that was on, and after a step that was off. */
  readonly #stay: number
  readonly #enter: number
  /** The last queried step, from which the next query continues when it is near. */
  #last: { readonly key: string; readonly index: number; readonly on: boolean } | undefined

  /** `purpose` separates chains; chains with the same purpose share their draws. */
  constructor(random: KeyedRandom, purpose: string, rate: number, meanLength: number) {
    this.#random = random
    this.#purpose = purpose
    this.#rate = rate
    this.#stay = rate === 1 ? 1 : 1 - 1 / meanLength
    this.#enter = rate === 1 ? 1 : rate / (meanLength * (1 - rate))
  }

  /**
   * Returns whether the chain is on in a step, with the deciding draw. Each further attempt at a call moves the chain
   * by a step, so a retry usually meets the burst that failed the first attempt. The next call continues from the state
   * of this call's first attempt.
   */
  at({ per, of, index, attempt = 1 }: Step): { readonly on: boolean; readonly u: number } {
    const key = of === undefined ? per : joined(per, of)
    const draw = (at: number) => this.#random(joined(key, at), this.#purpose)
    const last = this.#last?.key === key ? this.#last : undefined
    const first = index - (index % BLOCK)
    // Searches back for a step with a known state, or a state that does not depend on the step before.
    let at = index
    while (at > first && at !== last?.index && this.#depends(draw(at))) at--
    let on = at === last?.index ? last.on : draw(at) < (at === first ? this.#rate : this.#enter)
    while (at < index) on = draw(++at) < (on ? this.#stay : this.#enter)
    this.#last = { key, index, on }
    let u = draw(index)
    for (let again = 2; again <= attempt; again++) {
      u = this.#random(joined(key, index, again), this.#purpose)
      on = u < (on ? this.#stay : this.#enter)
    }
    return { on, u }
  }

  /** Returns true when the result of a draw depends on the state of the step before. */
  #depends(u: number): boolean {
    return u < this.#stay !== u < this.#enter
  }
}

/** Returns the first 16 hex digits of the SHA-256 of a text. */
export const digest = (text: string): string => hash('sha256', text, 'hex').slice(0, 16)

/** Joins fields into a text, each after its length, so no two lists of fields give the same text. */
export function joined(...fields: readonly (string | number)[]): string {
  let text = ''
  for (const field of fields) {
    const own = String(field)
    text += `${text === '' ? '' : ' '}${own.length}:${own}`
  }
  return text
}
