import { judge, valueInWords } from '../../claims/judge.ts'
import { subjects } from '../../claims/subjects.ts'
import type { Millis } from '../../mesh/clock.ts'
import { formatDuration } from '../../units/duration.ts'
import { type CallMetric, metricIn } from './claims.ts'
import type { Figures } from './meter.ts'
import { numbered } from '../../units/numbered.ts'

/** A limit on a metric of an arm, or on the difference of the arms. The run ends if the metric stays above the limit. */
export interface Rule {
  readonly metric: CallMetric
  /** The limit in the unit of the metric: shares in [0, 1], latencies in milliseconds. */
  readonly above: number
  /** `difference`: treatment minus control. */
  readonly of: 'treatment' | 'control' | 'difference'
  /** The metric must exceed the limit without a break for this time, in milliseconds. */
  readonly for: Millis
  /** The method that computed the limit from the baseline, in words. Undefined: the author set the limit. */
  readonly learned?: string
}

/** A measured value of a rule. */
export interface Measurement {
  readonly rule: Rule
  readonly value: number
  /** Calls in the measured window. */
  readonly calls: number
}

export interface Breach extends Measurement {
  /** Time since the metric began to exceed the limit, in milliseconds. */
  readonly forMs: Millis
}

export interface GateOptions {
  readonly rules: readonly Rule[]
  /** Minimum number of calls of an arm in a window. With fewer calls, the gate does not judge the rule. */
  readonly minimum: number
}

const armsInWords = { treatment: 'treatment', control: 'control', difference: 'treatment minus control' }

/** Returns a rule in words: `error_ratio of treatment above 5% for 2s`. */
export function ruleInWords({ metric, above, of, for: forMs, learned }: Rule): string {
  const long = forMs === 0 ? '' : ` for ${formatDuration(forMs)}`
  const how = learned === undefined ? '' : ` (${learned})`
  return `${metric} of ${armsInWords[of]} above ${valueInWords(subjects[metric].unit, above)}${long}${how}`
}

/**
 * Checks the rules of a run. A rule is measurable while each arm of the rule has enough calls in the window. A rule is
 * broken while the metric exceeds the limit. A rule ends the run once all measurements during `for` found the rule
 * broken. A check without a measurement changes nothing, so a broken rule stays broken.
 */
export class Gate {
  readonly #options: GateOptions
  /** For each broken rule, the time of the first measurement above the limit. */
  readonly #brokenSince = new Map<Rule, Millis>()
  /** For each rule, the time of the last measurement. */
  readonly #measuredAt = new Map<Rule, Millis>()
  #nearest: Measurement | undefined

  constructor(options: GateOptions) {
    this.#options = options
  }

  get rules(): readonly Rule[] {
    return this.#options.rules
  }

  /**
   * The measurement with the highest `shareOfLimit` so far. Undefined before the first measurement. Learned limits do
   * not count, because learned limits are close to normal values. Limits of 0 do not count, because 0 has no shares.
   */
  get nearest(): Measurement | undefined {
    return this.#nearest
  }

  /**
   * Checks all rules. Returns the breach that ends the run, or undefined. `figures`: the figures of each arm in the
   * window until now.
   */
  look(now: Millis, figures: Readonly<Record<'control' | 'treatment', Figures>>): Breach | undefined {
    for (const rule of this.#options.rules) {
      const found = this.#measure(rule, figures)
      if (found === undefined) continue
      this.#measuredAt.set(rule, now)
      this.#compare({ rule, ...found })
      if (judge([{ operator: '<=', value: rule.above }], found.value) === true) {
        this.#brokenSince.delete(rule)
        continue
      }
      const since = this.#brokenSince.get(rule) ?? now
      this.#brokenSince.set(rule, since)
      if (now - since >= rule.for) return { rule, ...found, forMs: now - since }
    }
    return undefined
  }

  /** Returns the rules without a measurement since a time. */
  unmeasuredSince(then: Millis): readonly Rule[] {
    return this.#options.rules.filter((rule) => (this.#measuredAt.get(rule) ?? -Infinity) < then)
  }

  #compare(found: Measurement): void {
    if (found.rule.learned !== undefined || found.rule.above <= 0) return
    if (this.#nearest === undefined || shareOfLimit(found) > shareOfLimit(this.#nearest))
      this.#nearest = found
  }

  #measure(
    { metric, of }: Rule,
    { control, treatment }: Readonly<Record<'control' | 'treatment', Figures>>,
  ): { readonly value: number; readonly calls: number } | undefined {
    const { minimum } = this.#options
    // Durations include calls still under way.
    const countOf = ({ calls, waiting }: Figures) =>
      subjects[metric].unit === 'ms' ? calls + waiting : calls
    const ofArm = (figures: Figures) => (countOf(figures) < minimum ? undefined : metricIn(metric, figures))
    if (of !== 'difference') {
      const figures = of === 'treatment' ? treatment : control
      const value = ofArm(figures)
      return value === undefined ? undefined : { value, calls: countOf(figures) }
    }
    const [a, b] = [ofArm(treatment), ofArm(control)]
    return a === undefined || b === undefined ? undefined : { value: a - b, calls: countOf(treatment) }
  }
}

/** Returns the measured value as a share of the limit: 1 at the limit, higher beyond. The limit must be above 0. */
export const shareOfLimit = ({ rule, value }: Measurement): number => value / rule.above

/** Returns a breach in words: `error_ratio of treatment was 40% over 25 calls, above 5%`. */
export const breachInWords = (breach: Breach): string =>
  `${foundInWords(breach)}, above ${limitInWords(breach.rule)}`

/** Returns an approach to a limit in words: `error_ratio of treatment was 4% over 25 calls, with 5% allowed`. */
export const approachInWords = (found: Measurement): string =>
  `${foundInWords(found)}, with ${limitInWords(found.rule)} allowed`

const foundInWords = ({ rule: { metric, of }, value, calls }: Measurement) =>
  `${metric} of ${armsInWords[of]} was ${valueInWords(subjects[metric].unit, value)} over ${numbered(calls, 'call')}`

const limitInWords = ({ metric, above }: Rule) => valueInWords(subjects[metric].unit, above)
