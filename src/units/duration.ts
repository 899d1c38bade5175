import { z } from 'zod'
import { formatQuantity, parseQuantity, quantities, quantityPattern } from './quantity.ts'

const units = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 }

/** Longest duration that every timer can hold: whole days below 2^31 ms. */
const MAX_MS = 24 * units.d

/** Writes milliseconds as a config does: 90000 is `90s`. */
export const formatDuration = (ms: number): string => formatQuantity(ms, units)

/**
 * A duration in a config: `250ms`, `1.5s`, `5m`, `1h`, `1d`, or a bare number of milliseconds.
 * Reads to whole milliseconds within `min` (default 0) … `max` (default 24 days).
 */
export function duration({ min = 0, max = MAX_MS }: { min?: number; max?: number } = {}) {
  const expected = `expected a duration from ${formatDuration(min)} to ${formatDuration(max)}, such as 250ms, 30s or 5m`
  return z
    .union(
      [z.number().min(min, expected).max(max, expected), z.string().regex(quantityPattern(units), expected)],
      expected,
    )
    .transform((value, context) => {
      const ms = typeof value === 'number' ? value : parseQuantity(value, units)
      if (ms !== undefined && ms >= min && ms <= max) return Math.round(ms)
      context.addIssue({ code: 'custom', message: expected })
      return z.NEVER
    })
    .register(quantities, { format: formatDuration })
}
