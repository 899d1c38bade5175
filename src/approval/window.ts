import { z } from 'zod'

const days = ['mon', 'tue', 'wed', 'thu', 'fri', 'sat', 'sun'] as const

const time = z.string().regex(/^([01]\d|2[0-3]):[0-5]\d$/, 'expected a time such as 09:00')

const zone = z.string().max(64).refine(isZone, 'expected a time zone such as Europe/Berlin')

const dayRange = z
  .string()
  .transform((given) => given.toLowerCase())
  .refine((given) => daysIn(given) !== undefined, 'expected days such as mon-fri or sat')

/** A weekly window for runs: days, and times from `from` (included) to `to` (excluded) on each of the days. */
export const windowSchema = z
  .strictObject({ days: dayRange, from: time, to: time, zone })
  .refine(({ from, to }) => from < to, 'expected "from" before "to" on the same day')

export type Window = z.output<typeof windowSchema>

/** Whether an instant, in milliseconds since the Unix epoch, is in the window. */
export function isWithin({ days: range, from, to, zone: timeZone }: Window, instant: number): boolean {
  const parts = new Intl.DateTimeFormat('en-GB', {
    timeZone,
    weekday: 'short',
    hour: '2-digit',
    minute: '2-digit',
    hourCycle: 'h23',
  }).formatToParts(instant)
  const part = (type: string) => parts.find((one) => one.type === type)?.value ?? ''
  const clock = `${part('hour')}:${part('minute')}`
  return daysIn(range)!.has(part('weekday').toLowerCase()) && clock >= from && clock < to
}

/** Interval of the checks in `holds`, in milliseconds. */
const LOOK_MS = 60_000

/** Whether a window covers the whole time between two instants. */
export function holds(window: Window, from: number, to: number): boolean {
  for (let at = from; at < to; at += LOOK_MS) if (!isWithin(window, at)) return false
  return isWithin(window, to)
}

function daysIn(range: string): ReadonlySet<string> | undefined {
  const [first = '', last = first, ...more] = range.split('-')
  const [from, to] = [first, last].map((day) => days.indexOf(day as (typeof days)[number]))
  if (from === undefined || to === undefined || from < 0 || to < from || more.length > 0) return undefined
  return new Set(days.slice(from, to + 1))
}

function isZone(name: string): boolean {
  try {
    new Intl.DateTimeFormat('en', { timeZone: name })
    return true
  } catch {
    return false
  }
}
