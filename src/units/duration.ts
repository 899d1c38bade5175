import { z } from 'zod'
import { formatQuantity, parseQuantity, quantities, quantityPattern } from './quantity.ts'

const units = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 }

/** Longest duration of a timer: whole days below 2^31 ms. */
const MAX_MS = 24 * units.d

/** Formats milliseconds as in a config: 90000 is `90s`. */
export const formatDuration = (ms: number): string => formatQuantity(ms, units)

/** Formats a measured time with rounding, as a valid duration: `0.4ms`, `12ms`, `1.5s`, `90s`, `12m`, `3.5h`. */
export function roundedDuration(ms: number): string {
  if (ms < 10) return `${Math.round(ms * 10) / 10}ms`
  if (ms < 999.5) return `${Math.round(ms)}ms`
  const unit = ms < 100 * units.s ? 's' : ms < 100 * units.m ? 'm' : ms < 72 * units.h ? 'h' : 'd'
  const count = ms / units[unit]
  return `${count < 10 ? Math.round(count * 10) / 10 : Math.round(count)}${unit}`
}

/** Formats a time to wait: `250ms`, `3s`. Rounds up, because an early retry is rejected again. */
export function waitDuration(ms: number): string {
  const step = ms < units.s ? 1 : units.s
  return formatDuration(Math.ceil(ms / step) * step)
}

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
    .register(quantities, { type: 'duration', format: formatDuration })
}
