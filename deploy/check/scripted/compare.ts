import { committedRules, isAlert } from '../expressions.ts'
import type { PrometheusApi } from '../prometheus-api.ts'
import { keyOf, measures, type Measure } from './measures.ts'
import { plainOf } from './plain.ts'

/**
 * How far what a rule has recorded may be off. A rate guesses what was counted at the edges of its window by
 * multiplying with a number that depends on when its series was scraped first and last. Here these times are the same
 * for all series, so that it cancels out of every ratio, and nothing is left but the rounding of floats.
 */
const TOLERANCE = 1e-9

/** What is computed otherwise than the script has it, in words; `since`: from when on counters are looked at. */
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
 * How samples, by their labels, differ from what is expected, in words. With a tolerance of 0 equality of floats is that
 * of ratios: the quotient of two whole numbers is rounded by its value alone, so that 2/3 and 4/6 are the same float,
 * and other ratios of numbers this small are others.
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
      return `${what}: finds ${value} for ${key}, where nothing is`
    if (value !== undefined && Math.abs(value - part / whole) <= tolerance) return []
    return `${what}: is ${value ?? 'nothing'} for ${key}, not ${part}/${whole} = ${part / whole}`
  })
}
