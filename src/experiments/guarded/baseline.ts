import { valueInWords } from '../../claims/judge.ts'
import { subjects } from '../../claims/subjects.ts'
import { type CallMetric, metricIn } from './claims.ts'
import type { Rule } from './gate.ts'
import type { Figures } from './meter.ts'

/** How to learn a threshold from the baseline, for a metric of the treatment. */
export type Learning = { readonly metric: CallMetric; readonly for: number } & (
  | { readonly method: 'static'; readonly above: number }
  /** Mean of the seconds plus `k` standard deviations. */
  | { readonly method: 'sigma'; readonly k: number }
  /** A percentile of the seconds, times `factor`. */
  | { readonly method: 'percentile'; readonly percentile: number; readonly factor: number }
  /** Third quartile of the seconds plus `k` interquartile ranges. */
  | { readonly method: 'iqr'; readonly k: number }
)

/** Seconds with calls needed to learn a threshold. */
export const LEAST_SECONDS = 5

/** Tolerated share of far-out seconds in a baseline; one such second is always tolerated. */
const FAR_OUT_SHARE = 0.1

/** Tukey's outer fence in interquartile ranges: values beyond are "far out". */
const FAR_OUT_K = 3

/** Tolerated ratio of the medians of a baseline's second and first half. Getting faster is fine. */
const DRIFT = 2

/** Smaller latency differences count as noise, in milliseconds. */
const NOISE_MS = 20

/** Returns a rule with a threshold learned from the seconds of a baseline, or the problem that prevents a threshold. */
export function learn(
  learning: Learning,
  seconds: readonly Figures[],
): { readonly rule: Rule } | { readonly problem: string } {
  const { metric, for: forMs } = learning
  const words = wordsOf(learning)
  const rule = (above: number): { rule: Rule } => ({
    rule: { metric, above: bounded(metric, above), of: 'treatment', for: forMs, learned: words },
  })
  if (learning.method === 'static') return rule(learning.above)
  const values = valuesOf(metric, seconds)
  if (values.length < LEAST_SECONDS)
    return {
      problem: `${metric} was seen in ${values.length} seconds of the baseline, and ${words} needs ${LEAST_SECONDS}`,
    }
  switch (learning.method) {
    case 'sigma':
      return rule(meanOf(values) + learning.k * deviationOf(values))
    case 'percentile':
      return rule(quantileOf(values, learning.percentile / 100) * learning.factor)
    case 'iqr': {
      const [low, high] = [quantileOf(values, 0.25), quantileOf(values, 0.75)]
      return rule(high + learning.k * (high - low))
    }
  }
}

function wordsOf(learning: Learning): string {
  switch (learning.method) {
    case 'static':
      return 'static'
    case 'sigma':
      return `mean + ${learning.k}σ of the baseline`
    case 'percentile':
      return `p${learning.percentile} of the baseline × ${learning.factor}`
    case 'iqr':
      return `third quartile of the baseline + ${learning.k} IQR`
  }
}

/** Returns a threshold; caps a share below 1, because no share of failed calls ever exceeds 1. */
const bounded = (metric: CallMetric, above: number) =>
  subjects[metric].unit === 'share' ? Math.min(above, 0.999) : above

/** Returns why a baseline is unfit for comparison; empty when fit. */
export function anomaliesIn(seconds: readonly Figures[]): readonly string[] {
  return [...spikes('mean', seconds), ...spikes('error_ratio', seconds), ...drift(seconds)]
}

function spikes(metric: CallMetric, seconds: readonly Figures[]): string[] {
  const values = valuesOf(metric, seconds)
  if (values.length < LEAST_SECONDS) return []
  const { unit } = subjects[metric]
  const [low, high] = [quantileOf(values, 0.25), quantileOf(values, 0.75)]
  const fence = high + Math.max(FAR_OUT_K * (high - low), unit === 'ms' ? NOISE_MS : 0.02)
  // Skips slow first seconds: the server was still warming up.
  const settledAt = unit === 'ms' ? values.findIndex((value) => value <= fence) : 0
  const far = values.slice(settledAt).filter((value) => value > fence).length
  if (far <= Math.max(1, FAR_OUT_SHARE * values.length)) return []
  return [
    `${metric} was above ${valueInWords(unit, fence)} in ${far} of ${values.length} seconds, and below in the others`,
  ]
}

function drift(seconds: readonly Figures[]): string[] {
  const values = valuesOf('p50', seconds)
  if (values.length < 2 * LEAST_SECONDS) return []
  const half = Math.floor(values.length / 2)
  const [first, second] = [values.slice(0, half), values.slice(half)].map((part) => quantileOf(part, 0.5))
  if (second! <= DRIFT * first! || second! - first! <= NOISE_MS) return []
  return [
    `the median went from ${valueInWords('ms', first!)} in its first half to ${valueInWords('ms', second!)} in its second`,
  ]
}

const valuesOf = (metric: CallMetric, seconds: readonly Figures[]): number[] =>
  seconds.flatMap((figures) => metricIn(metric, figures) ?? [])

const meanOf = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length

function deviationOf(values: readonly number[]): number {
  const mean = meanOf(values)
  return Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (values.length - 1))
}

/** Returns a quantile of the values. Interpolates linearly between two values, like most tools. */
function quantileOf(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b)
  const at = share * (sorted.length - 1)
  const low = sorted[Math.floor(at)]!
  return low + (sorted[Math.ceil(at)]! - low) * (at - Math.floor(at))
}
