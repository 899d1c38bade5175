import { z } from 'zod'
import { numberIn } from '../claims/claim.ts'

/** A number, or a duration such as `5s`. */
const bound = z.union([z.number(), z.string().max(32)]).transform((given, context): number => {
  const value = numberIn('ms', given)
  if (value !== undefined) return value
  context.addIssue({ code: 'custom', message: 'expected a number, or a duration such as 5s' })
  return z.NEVER
})

/** A limit on a field of a fault: the worst value, or `min` and `max`. */
export const faultLimit = z.union([
  bound,
  z
    .strictObject({ min: bound.optional(), max: bound.optional() })
    .refine(({ min, max }) => min !== undefined || max !== undefined, 'expected min, max or both'),
])

type FaultLimit = z.output<typeof faultLimit>

/** Fields in which a smaller number does more harm, by type of fault. */
export const lessIsWorse: Readonly<Record<string, readonly string[]>> = {
  'conn.latency': ['distribution.alpha'],
  'conn.bandwidth': ['kibPerSecond'],
  'conn.slow_drip': ['chunk'],
  'conn.reset': ['at.afterBytes', 'at.after'],
  'conn.flap': ['up'],
  'proc.crash_loop': ['after'],
  'http.status': ['status'],
  'listen.refused': ['status'],
  'listen.cut': ['afterEvents', 'after'],
  'listen.stall': ['afterEvents'],
  'sse.cut': ['afterEvents', 'after'],
  'sse.stall': ['afterEvents'],
  'sse.bad_frame': ['afterEvents'],
  'sse.progress_forever': ['every'],
  'auth.expired': ['after'],
  'auth.refresh_refused': ['after'],
  'auth.owner_changed': ['after'],
  'limit.429': ['perSecond'],
  'pool.exhaust': ['slots'],
  failure_domain: ['up'],
  cold_start: ['idle'],
}

/** Returns whether a number is within a limit. A plain limit is the largest number, or the smallest where less is worse. */
export function isWithinLimit(value: number, limit: FaultLimit, type: string, path: string): boolean {
  const { min = -Infinity, max = Infinity } = typeof limit === 'object' ? limit : worst(limit, type, path)
  return value >= min && value <= max
}

/** Returns a limit in words, such as `at most 5s`. `inUnits` formats a number of the field. */
export function limitInWords(
  limit: FaultLimit,
  type: string,
  path: string,
  inUnits: (value: number) => string,
): string {
  const { min, max } = typeof limit === 'object' ? limit : worst(limit, type, path)
  return [
    ...(min === undefined ? [] : [`at least ${inUnits(min)}`]),
    ...(max === undefined ? [] : [`at most ${inUnits(max)}`]),
  ].join(', ')
}

const worst = (
  limit: number,
  type: string,
  path: string,
): { readonly min?: number; readonly max?: number } =>
  lessIsWorse[type]?.includes(path) === true ? { min: limit } : { max: limit }
