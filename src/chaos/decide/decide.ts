import type { KeyedRandom } from '../../mesh/keyed-random.ts'
import type { Fault } from '../plan/common.ts'
import { hash } from 'node:crypto'

/** A step of a burst chain. */
export interface Step {
  /** The unit of a step; see `when.burst`. */
  readonly per: 'slot' | 'call' | 'intent'
  /** The chain, where a fault has several: the task of the calls, or the part that the names of tasks in a row share. */
  readonly of?: string | undefined
  readonly index: number
  /** Number of the attempt at a call, from 1, where steps are calls; 1 unless given. */
  readonly attempt?: number
}

/** All that a decision rests on, besides the plan and its seed: it is journaled, so that it can be made again. */
export interface Facts {
  /** The key of the draw. */
  readonly drawKey: string
  /** Key of the draw about a whole task; only where a fault aims at a share of the tasks. */
  readonly task?: string | undefined
  /** Number of this call among the calls that match, by arrival, from 1. */
  readonly count: number
  /** How long the fault had been armed, in milliseconds. */
  readonly sinceMs: number
  /** The step of its burst chain. */
  readonly step?: Step | undefined
}

export interface Decision {
  /** The draw: it hits when this lies below `rate`. In bursts, the draw of the chain's step. */
  readonly u: number
  /** The rate at that time; for a task that is left out, the share of the tasks that are hit. */
  readonly rate: number
  readonly because: 'rate' | 'schedule' | 'task' | undefined
}

/** Decides about calls, the same way in every process, as far as the plan goes; limits are others' business. */
export type Decider = (facts: Facts) => Decision

/** The decider of a fault. */
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

/** The name that a fault draws as. Its own cannot begin like that of a domain. */
export const drawnAs = ({ name, domain }: Fault): string => (domain === undefined ? name : `@${domain}`)

/** Whether the order in which calls come, or the time, has a say in a fault's decisions, whatever the call. */
export function dependsOnOrder({ domain, when }: Fault): boolean {
  const { onCall, afterCalls, everyNth, window, burst, ramp } = when ?? {}
  const isBySlot = burst !== undefined && burst.per === 'slot'
  return isBySlot || [onCall, afterCalls, everyNth, window, ramp, domain].some((part) => part !== undefined)
}

/** Every so many steps the state is drawn afresh: no step is further than this from one that is known. */
const BLOCK = 4096

/**
 * A two-state chain (Gilbert): on with probability `rate` over time, for `meanLength` steps on average. It leaves
 * a burst with 1 / meanLength, enters one with rate / (meanLength · (1 − rate)), and begins in its long-term state.
 * The draw of a step depends on its chain and index only, so that any step can be asked for, in any order, in any
 * process.
 */
export class Bursts {
  readonly #random: KeyedRandom
  readonly #purpose: string
  readonly #rate: number
  /** Probabilities of being on in the step after one that was on, and after one that was off. */
  readonly #stay: number
  readonly #enter: number
  /** The step that was asked for last: the next one is mostly near it. */
  #last: { readonly key: string; readonly index: number; readonly on: boolean } | undefined

  /** `purpose` sets the chains apart from those of others; chains of one purpose share their draws. */
  constructor(random: KeyedRandom, purpose: string, rate: number, meanLength: number) {
    this.#random = random
    this.#purpose = purpose
    this.#rate = rate
    this.#stay = rate === 1 ? 1 : 1 - 1 / meanLength
    this.#enter = rate === 1 ? 1 : rate / (meanLength * (1 - rate))
  }

  /**
   * Whether the chain is on in a step, and the draw that decided it. The attempts at a call after the first go on from its
   * state, a step each, so that a retry most often lands in the burst that failed the first attempt; the next call goes
   * on from where this one began.
   */
  at({ per, of, index, attempt = 1 }: Step): { readonly on: boolean; readonly u: number } {
    const key = of === undefined ? per : joined(per, of)
    const draw = (at: number) => this.#random(joined(key, at), this.#purpose)
    const last = this.#last?.key === key ? this.#last : undefined
    const first = index - (index % BLOCK)
    // Back to a step whose state is known, or does not depend on that before it; mostly that is not far.
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

  /** Whether a draw means something else after a step that was on than after one that was off. */
  #depends(u: number): boolean {
    return u < this.#stay !== u < this.#enter
  }
}

/** The first 16 hex digits of the SHA-256 of a text. */
export const digest = (text: string): string => hash('sha256', text, 'hex').slice(0, 16)

/** Fields as one text, each with its length in front, so that no two lists of fields run together. */
export function joined(...fields: readonly (string | number)[]): string {
  let text = ''
  for (const field of fields) {
    const own = String(field)
    text += `${text === '' ? '' : ' '}${own.length}:${own}`
  }
  return text
}
