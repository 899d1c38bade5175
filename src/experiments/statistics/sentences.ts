import type { Interval } from './unit-estimates.ts'

export interface Metric {
  readonly name: string
  /** `points`: shares from 0 to 1, shown as percentage points; `ms`: milliseconds; `count`: counts. */
  readonly unit: 'points' | 'ms' | 'count'
  readonly better: 'higher' | 'lower'
  /**
   * Words around a difference. `points`: subject and verb (`tasks succeed`, `calls fail`). `ms`: subject and verb
   * (`calls take`, `the median call takes`). `count`: a plural (`calls per task`).
   */
  readonly words: string
}

/**
 * Returns a difference in words, with its interval: `4.1 points fewer tasks succeed (95 % CI 2.2–6.0, 812 tasks)`,
 * `calls take 120 ms longer (95 % CI −30 to 270, 812 tasks)`. Interval ends are positive on the side named by the
 * words. `units` ends the parenthesis.
 */
export function differenceInWords(
  metric: Metric,
  difference: Interval,
  alpha: number,
  units: string,
): string {
  const { estimate } = difference
  const precision = decimals(metric, (difference.high - difference.low) / 2)
  const size = inDigits(metric, Math.abs(estimate), precision)
  const range = rangeInWords(metric, difference, precision)
  return `${amount(metric, size, estimate < 0)} (${percentage(1 - alpha)} CI ${range}, ${units})`
}

/** Returns a size in the unit of its metric, to three digits: `2 points`, `120 ms`, `0.5`. */
export function sizeInWords(metric: Pick<Metric, 'unit'>, size: number): string {
  return withUnit(metric, String(Number((size * scaleOf(metric)).toPrecision(3))))
}

/** Returns a share as text, such as `95 %` or `99.9 %`. */
export function percentage(share: number): string {
  return `${Number((100 * share).toPrecision(6))} %`
}

/** Returns a p-value as text, to one digit: `p = 0.0003`; `p < 0.000001` for smaller values. */
export function pInWords(p: number): string {
  if (p < 1e-6) return 'p < 0.000001'
  return `p = ${Number(p.toPrecision(1)).toFixed(Math.max(0, Math.ceil(-Math.log10(p))))}`
}

/** Returns a difference without an interval, to three digits: `4.1 points fewer tasks succeed`. */
export function amountInWords(metric: Metric, estimate: number): string {
  const size = String(Number((Math.abs(estimate) * scaleOf(metric)).toPrecision(3)))
  return amount(metric, size, estimate < 0)
}

function amount(metric: Metric, size: string, isLess: boolean): string {
  const { unit, words } = metric
  switch (unit) {
    case 'points':
      return `${withUnit(metric, size)} ${isLess ? 'fewer' : 'more'} ${words}`
    case 'ms':
      return `${words} ${withUnit(metric, size)} ${isLess ? 'less' : 'longer'}`
    case 'count':
      return `${size} ${isLess ? 'fewer' : 'more'} ${words}`
  }
}

function withUnit({ unit }: Pick<Metric, 'unit'>, digits: string): string {
  if (unit === 'count') return digits
  return `${digits} ${unit === 'points' && digits === '1' ? 'point' : unit}`
}

/** Returns the interval on the side named by the words: `2.2–6.0`, or `−0.8 to 1.4` if it holds 0. */
function rangeInWords(metric: Metric, { estimate, low, high }: Interval, precision: number): string {
  const [from, to] = estimate < 0 ? [-high, -low] : [low, high]
  const [start, end] = [inDigits(metric, from, precision), inDigits(metric, to, precision)]
  return from < 0 || to < 0 || !Number.isFinite(to - from) ? `${start} to ${end}` : `${start}–${end}`
}

const scaleOf = ({ unit }: Pick<Metric, 'unit'>): number => (unit === 'points' ? 100 : 1)

/** Returns the decimals, 0 to 6, that show two digits of half an interval's width; 1 if unknown or 0. */
export function decimals(metric: Pick<Metric, 'unit'>, half: number): number {
  const width = half * scaleOf(metric)
  if (!(width > 0 && Number.isFinite(width))) return 1
  return Math.min(6, Math.max(0, 1 - Math.floor(Math.log10(width))))
}

function inDigits(metric: Metric, value: number, precision: number): string {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? '?' : value < 0 ? '−∞' : '∞'
  const digits = Math.abs(value * scaleOf(metric)).toFixed(precision)
  return value < 0 && Number(digits) !== 0 ? `−${digits}` : digits
}
