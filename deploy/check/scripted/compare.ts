import { committedRules, isAlert } from '../expressions.ts'
import type { PrometheusApi } from '../prometheus-api.ts'
import { keyOf, measures, type Measure } from './measures.ts'
import { plainOf } from './plain.ts'

/**
 * Largest relative error of a recorded rule. A rate extrapolates to the edges of its window with a factor that depends
 * on the times of the first and last scrape of its series. Here the times are the same for all series, so the factor
 * cancels in every ratio, and only rounding of floats remains.
 */
const TOLERANCE = 1e-9

/** Returns figures that differ from the script, as sentences; counters count from `since` on. */
export async function differences(prometheus: PrometheusApi, since: number): Promise<string[]> {
  const rules = new Map(committedRules().flatMap((rule) => (isAlert(rule) ? [] : [[rule.record, rule.expr]])))
  const problems: string[] = []
  for (const { expr, expected } of measures) {
    const counted = await valuesOf(prometheus, plainOf(expr, rules, since))
    problems.push(...mismatches(`${expr}, from counters`, expected, counted, 0))
    problems.push(...mismatches(expr, expected, await valuesOf(prometheus, expr), TOLERANCE))
  }
  return problems
}

async function valuesOf(prometheus: PrometheusApi, expr: string): Promise<Map<string, number>> {
  const samples = await prometheus.instant(expr)
  return new Map(samples.map(({ metric, value }) => [keyOf(metric), Number(value?.[1])]))
}

/**
 * Returns differences between samples, by their labels, and the expected values, as sentences. Tolerance 0 compares
 * floats exactly, which is exact for ratios: the rounded quotient depends on the ratio alone, so 2/3 and 4/6 are the
 * same float, and different ratios of small numbers differ.
 */
export function mismatches(
  what: string,
  expected: Measure['expected'],
  found: ReadonlyMap<string, number>,
  tolerance: number,
): string[] {
  return [...new Set([...expected.keys(), ...found.keys()])].flatMap((key) => {
    const [part, whole] = expected.get(key) ?? []
    const value = found.get(key)
    if (part === undefined || whole === undefined)
      return `${what}: found ${value} for ${key}, expected nothing`
    if (value !== undefined && Math.abs(value - part / whole) <= tolerance) return []
    return `${what}: found ${value ?? 'nothing'} for ${key}, expected ${part}/${whole} = ${part / whole}`
  })
}
