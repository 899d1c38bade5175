import type { Call, Outcome } from '../../mesh/call.ts'
import type { Millis } from '../../mesh/clock.ts'
import { gatewayError, type PolicyReason } from '../../mesh/errors.ts'
import { Fact } from '../../mesh/record.ts'
import { counter } from '../../mesh/metric-spec.ts'
import { askedMs } from '../../mesh/pause-deadline.ts'
import { roundedDuration } from '../../units/duration.ts'
import type { LatencyEstimate } from '../state/estimate.ts'

export const deadlineInfeasible = {
  name: 'deadline_infeasible',
  code: 1504,
  retryable: true,
  about: 'By all estimates for the tool, its answer would arrive after the deadline.',
} as const satisfies PolicyReason

export const infeasible = new Fact(false, {
  about: 'An estimate said that the deadline could not be met.',
  log: 'infeasible',
  event: () => ({ decision: 'infeasible' }),
  counting: {
    metric: counter(
      'deadlines_infeasible_total',
      'Calls estimated to miss their deadline, rejected or not.',
      ['server', 'arm'],
      'servers × arms',
    ),
  },
})

export interface FeasibilityRule {
  readonly feasibility: 'off' | 'observe' | 'enforce'
  /** Least probability of an answer in time, in [0, 1]. */
  readonly threshold: number
  /** Share of the infeasible calls sent nevertheless, in [0, 1]. */
  readonly explore: number
}

interface Estimated {
  readonly estimate: LatencyEstimate
}

/** Decides whether a call can be answered before its deadline, by all estimates for its tool. */
export class Feasibility {
  readonly #rule: FeasibilityRule
  /** The sum of `explore` over infeasible calls; at 1, the next call is sent nevertheless. */
  #explored = 0

  constructor(rule: FeasibilityRule) {
    this.#rule = rule
  }

  /** Returns the remaining time of a call, in milliseconds; undefined without a deadline, or with feasibility off. */
  leftMs({ deadline, record }: Call, now: Millis): Millis | undefined {
    if (deadline === undefined || this.#rule.feasibility === 'off') return undefined
    return deadline.at + askedMs(record, now) - now
  }

  /** Returns whether a replica will probably answer in time. True when nothing is known. */
  fits({ estimate }: Estimated, leftMs: Millis, now: Millis): boolean {
    const chance = estimate.chanceWithin(leftMs, now)
    return chance === undefined || chance >= this.#rule.threshold
  }

  /**
   * Returns the rejection of a call no replica will answer in time; undefined when the call is to be sent nevertheless.
   * Some infeasible calls are sent, at even intervals, to notice when the tool has become faster.
   */
  refuse({ estimate }: Estimated, leftMs: Millis, now: Millis): Outcome | undefined {
    if (this.#rule.feasibility !== 'enforce') return undefined
    this.#explored += this.#rule.explore
    if (this.#explored >= 1) {
      this.#explored--
      return undefined
    }
    const percent = Math.round(100 * (estimate.chanceWithin(leftMs, now) ?? 0))
    const message = `estimate: ${percent} % chance of an answer within the remaining ${roundedDuration(Math.max(0, leftMs))}`
    return { kind: 'rejected', error: gatewayError(deadlineInfeasible, message), by: 'route' }
  }
}
