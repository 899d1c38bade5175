import { z } from 'zod'
import { duration } from '../../units/duration.ts'
import { operator } from './operator.ts'
import { pointer } from './pointer.ts'

/** Matches dates in the format of RFC 3339: a day, or a day with a time. */
const iso = /^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?$/

const isDate = (value: unknown): value is string =>
  typeof value === 'string' && iso.test(value) && !Number.isNaN(Date.parse(value))

export const date = operator({
  about: 'Writes an ISO date in another format.',
  detectable: 'schema_detectable',
  on: 'json',
  schema: z.strictObject({
    op: z.literal('date'),
    path: pointer(),
    form: z
      .enum(['epoch', 'epoch_ms', 'dmy'])
      .default('epoch')
      .describe('Seconds or milliseconds since 1970, or DD/MM/YYYY.'),
  }),
  fits: ({ value }) => isDate(value),
  edit: ({ value }, { form }) => ({ value: written(value as string, form) }),
})

function written(text: string, form: 'epoch' | 'epoch_ms' | 'dmy'): number | string {
  const ms = Date.parse(text)
  if (form === 'epoch') return Math.floor(ms / 1000)
  if (form === 'epoch_ms') return ms
  return `${text.slice(8, 10)}/${text.slice(5, 7)}/${text.slice(0, 4)}`
}

export const staleValue = operator({
  about: 'Replaces a value by an older value.',
  detectable: 'semantic',
  on: 'json',
  schema: z.strictObject({
    op: z.literal('stale_value'),
    path: pointer(),
    age: duration({ min: 1000 }).default(86_400_000).describe('How much older an ISO date becomes.'),
    change: z
      .number()
      .gt(0)
      .lt(1)
      .default(0.1)
      .describe(
        'Share by which the old value of a number is smaller; the old value of a whole number is smaller by at least 1.',
      ),
    to: z.json().optional().describe('The old value. Without this field, only dates and numbers change.'),
  }),
  fits({ value }, { to }) {
    if (to !== undefined) return JSON.stringify(value) !== JSON.stringify(to)
    return isDate(value) || (typeof value === 'number' && value !== 0)
  },
  edit({ value }, { age, change, to }) {
    if (to !== undefined) return { value: to }
    return { value: isDate(value) ? earlier(value, age) : fewer(value as number, change) }
  },
})

/**
 * Returns the date `ageMs` milliseconds earlier, with the same precision. A date without a time moves by at least a
 * day.
 */
function earlier(text: string, ageMs: number): string {
  if (!text.includes('T'))
    return new Date(Date.parse(text) - Math.max(ageMs, 86_400_000)).toISOString().slice(0, 10)
  return shifted(text, -ageMs) ?? text
}

/** Returns a point in time (RFC 3339, with time of day) moved by `byMs`; undefined outside of the years 0 to 9999. */
export function shifted(text: string, byMs: number): string | undefined {
  const zone = /(Z|[+-]\d\d:?\d\d)$/.exec(text)?.[0] ?? ''
  const local = text.slice(0, text.length - zone.length)
  const moved = Date.parse(`${local}Z`) + byMs
  if (!(moved >= YEAR_0 && moved < YEAR_10000)) return undefined
  const written = new Date(moved).toISOString()
  const exact = /\.\d+$/.exec(local)?.[0] ?? ''
  return `${written.slice(0, local.length - exact.length)}${exact}${zone}`
}

/** RFC 3339 has only years of four digits. */
const YEAR_0 = Date.parse('0000-01-01T00:00:00Z')
const YEAR_10000 = Date.parse('+010000-01-01T00:00:00Z')

function fewer(value: number, change: number): number {
  const less = value * (1 - change)
  if (!Number.isInteger(value)) return less
  return value - Math.max(1, Math.round(Math.abs(value) * change))
}
