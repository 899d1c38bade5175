import { roundedDuration } from '../../units/duration.ts'
import type { Unit } from './study.ts'

const DIGITS = 6

/** Returns a rounded number for findings; null for NaN or infinity, such as the mean of an empty list. */
export const figure = (value: number): number | null =>
  Number.isFinite(value) ? Number(value.toPrecision(DIGITS)) : null

export function inWords(value: number, unit: Unit): string {
  switch (unit) {
    case 'share':
      return `${fixed(value * 100, 1)} %`
    case 'points':
      return `${value > 0 ? '+' : ''}${fixed(value * 100, 1)} points`
    case 'ms':
      return value < 0 ? `-${roundedDuration(-value)}` : roundedDuration(value)
    case 's':
      return value === 0 ? '0s' : roundedDuration(value * 1_000)
    case 'count':
      return fixed(value, value < 100 ? 2 : 0)
    case 'perSecond':
      return `${fixed(value, 1)}/s`
    case 'times':
      return `${fixed(value, 1)} x`
  }
}

/**
 * Number of digits in which a sum and its rounded figure agree. With more digits, one could round up and the other
 * down.
 */
const SURE_DIGITS = 12

/** Formats a number with at most `digits` decimals; zero has no sign. */
const fixed = (value: number, digits: number): string =>
  String(Number(Number(value.toPrecision(SURE_DIGITS)).toFixed(digits)) || 0)

/** Joins names for a sentence: `a`, `a and b`, `a, b and c`. */
export function listed(names: readonly string[]): string {
  const last = names.at(-1) ?? ''
  return names.length < 2 ? last : `${names.slice(0, -1).join(', ')} and ${last}`
}
