import { askedMs } from '../../mesh/asking.ts'
import type { Call, Outcome } from '../../mesh/call.ts'
import type { Millis } from '../../mesh/clock.ts'
import { gatewayError } from '../../mesh/errors.ts'
import type { Replica } from './replica.ts'

export interface FeasibilityRule {
  readonly feasibility: 'off' | 'observe' | 'enforce'
  /** Least probability of an answer in time, in [0, 1]. */
  readonly threshold: number
  /** Share of the infeasible calls that are sent nevertheless, in [0, 1]. */
  readonly explore: number
}

/** Whether a call can be answered before its deadline, by all that is known of its tool. */
export class Feasibility {
  readonly #rule: FeasibilityRule
  /** What has accumulated towards the next call that is sent nevertheless. */
  #explored = 0

  constructor(rule: FeasibilityRule) {
    this.#rule = rule
  }

  /** How long a call has, in milliseconds; undefined when it has no deadline, or nobody wants to know. */
  leftMs({ deadline, record }: Call, now: Millis): Millis | undefined {
    if (deadline === undefined || this.#rule.feasibility === 'off') return undefined
    return deadline.at + askedMs(record, now) - now
  }

  /** Whether a replica will probably answer in time. Yes, if nothing is known. */
  fits({ estimate }: Replica, leftMs: Millis, now: Millis): boolean {
    const chance = estimate.chanceWithin(leftMs, now)
    return chance === undefined || chance >= this.#rule.threshold
  }

  /**
   * The end of a call that no replica will answer in time; undefined when it is to be sent nevertheless. Some always
   * are, at even intervals: nobody would notice otherwise that the tool has become faster.
   */
  refuse({ estimate }: Replica, leftMs: Millis, now: Millis): Outcome | undefined {
    if (this.#rule.feasibility !== 'enforce') return undefined
    this.#explored += this.#rule.explore
    if (this.#explored >= 1) {
      this.#explored--
      return undefined
    }
    const percent = Math.round(100 * (estimate.chanceWithin(leftMs, now) ?? 0))
    const message = `estimate: ${percent} % chance of an answer within the remaining ${Math.max(0, Math.floor(leftMs))} ms`
    return { kind: 'rejected', error: gatewayError('deadline_infeasible', message), by: 'route' }
  }
}
