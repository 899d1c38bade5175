import { z } from 'zod'
import type { Rate } from '../state/token-bucket.ts'

const units: Readonly<Record<string, number>> = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 }

/** Most calls per unit of time: more are no limit. */
const MOST_CALLS = 1_000_000

const pattern = /^(\d+(?:\.\d+)?)\/([smhd])$/

const expected = `expected a rate above 0 and up to ${MOST_CALLS} calls per unit, such as 100/s, 60/m or 1000/h`

/** A rate in a config: `100/s`, `60/m`, `1000/h`, `5000/d`, or a bare number of calls per second. */
export function rate() {
  return z
    .union(
      [z.number().positive(expected).max(MOST_CALLS, expected), z.string().regex(pattern, expected)],
      expected,
    )
    .transform((value, context): Rate => {
      const [, count, unit = 's'] = typeof value === 'number' ? [value, value] : (pattern.exec(value) ?? [])
      const calls = Number(count)
      if (calls > 0 && calls <= MOST_CALLS) return { calls, perMs: units[unit] ?? 1_000 }
      context.addIssue({ code: 'custom', message: expected })
      return z.NEVER
    })
}

/** How many calls a second that is. */
export const perSecond = ({ calls, perMs }: Rate): number => (calls * 1_000) / perMs

/** Writes a rate as a config does: `60/m`. */
export function formatRate({ calls, perMs }: Rate): string {
  const unit = Object.keys(units).find((name) => units[name] === perMs) ?? 's'
  return `${calls}/${unit}`
}
