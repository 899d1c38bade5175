import { roundedDuration } from '../units/duration.ts'
import type { Unit } from './subjects.ts'

/** Operator and value of a claim; `value` is in the unit of the subject. */
export interface Bound {
  readonly operator: '<=' | '>=' | '<' | '>' | '='
  readonly value: number
}

/** The bounds of a number not known exactly. */
export interface Range {
  readonly least: number
  readonly most: number
}

const comparisons = {
  '<': (found: number, value: number) => found < value,
  '<=': (found: number, value: number) => found <= value,
  '>': (found: number, value: number) => found > value,
  '>=': (found: number, value: number) => found >= value,
}

/**
 * Returns true when a number keeps all bounds. Undefined when the number is unknown, or when only a part of its range
 * keeps the bounds.
 */
export function judge(bounds: readonly Bound[], found: number | Range | undefined): boolean | undefined {
  if (found === undefined) return undefined
  const ends = typeof found === 'number' ? [found] : [found.least, found.most]
  const kept = bounds.flatMap(({ operator, value }) => {
    const operators = operator === '=' ? (['<=', '>='] as const) : [operator]
    return operators.map((one) => ends.filter((end) => comparisons[one](end, value)).length)
  })
  if (kept.includes(0)) return false
  return kept.every((count) => count === ends.length) || undefined
}

/** Returns a value as text, with its unit. */
export function valueInWords(unit: Unit, value: number): string {
  switch (unit) {
    case 'ms':
      return value < 0 ? `-${roundedDuration(-value)}` : roundedDuration(value)
    case 'share':
      return `${percentOf(value)}%`
    case 'count':
      return String(Number.isInteger(value) ? value : Number(value.toPrecision(3)))
    case 'state':
      return value === 1 ? 'up' : 'down'
  }
}

/**
 * Returns a share in percent, with three digits. A share below 1 gets more digits if it would otherwise show as 100.
 */
function percentOf(share: number): number {
  const rounded = Number((share * 100).toPrecision(3))
  return rounded === 100 && share < 1 ? Math.floor(share * 1e7) / 1e5 : rounded
}
