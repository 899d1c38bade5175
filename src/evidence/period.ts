/** Milliseconds of a day of UTC. */
export const DAY_MS = 86_400_000

/** A span of whole days of UTC. All fields but `name` are milliseconds since the Unix epoch. */
export interface Period {
  /** The period as written: `2026Q4`, `2026` or `2026-10-01..2026-12-31`. */
  readonly name: string
  readonly fromMs: number
  /** Exclusive. */
  readonly toMs: number
  /** The moment for which due dates are judged: now, or the last millisecond of a past period. */
  readonly judgedMs: number
}

const FORMS = 'a quarter such as 2026Q4, a year such as 2026, or days such as 2026-10-01..2026-12-31'

const QUARTER = /^(\d{4})Q(\d)$/
const YEAR = /^\d{4}$/
const DAY = /^\d{4}-\d{2}-\d{2}$/

/** Earliest year; the latest year is 9999. */
const FIRST_YEAR = 2000

/** Returns true for the form of a quarter, such as `2026Q4`. */
export const isQuarter = (text: string): boolean => QUARTER.test(text)

/** Returns the day of a moment, as `2026-11-30`. */
export const dayOf = (ms: number): string => new Date(ms).toISOString().slice(0, 10)

/**
 * Returns the period of a text, judged at `nowMs`. Returns a sentence for a wrong text, and for a period that has not
 * begun.
 */
export function parsePeriod(text: string, nowMs: number): Period | string {
  const span = spanOf(text)
  if (typeof span === 'string') return span
  const [fromMs, toMs] = span
  if (fromMs > nowMs) return `the period ${text} has not begun: its first day is ${dayOf(fromMs)}`
  return { name: text, fromMs, toMs, judgedMs: Math.min(nowMs, toMs - 1) }
}

function spanOf(text: string): readonly [number, number] | string {
  const [, ofQuarter, digit] = QUARTER.exec(text) ?? []
  if (ofQuarter !== undefined) {
    const quarter = Number(digit)
    if (quarter < 1 || quarter > 4) return `a year has the quarters Q1 to Q4, not "${text}"`
    const year = Number(ofQuarter)
    return wrongYear(year) ?? [Date.UTC(year, 3 * (quarter - 1), 1), Date.UTC(year, 3 * quarter, 1)]
  }
  if (YEAR.test(text)) {
    const year = Number(text)
    return wrongYear(year) ?? [Date.UTC(year, 0, 1), Date.UTC(year + 1, 0, 1)]
  }
  const [from, to, more] = text.split('..')
  if (from === undefined || to === undefined || more !== undefined) return `expected ${FORMS}, not "${text}"`
  const [first, last] = [momentOf(from), momentOf(to)]
  if (typeof first === 'string') return first
  if (typeof last === 'string') return last
  if (last < first) return `the period ends before it begins: ${to} is before ${from}`
  return [first, last + DAY_MS]
}

const wrongYear = (year: number): string | undefined =>
  year < FIRST_YEAR ? `expected a year from ${FIRST_YEAR} to 9999, not ${year}` : undefined

/** Returns the first millisecond of a day, or a sentence. */
function momentOf(day: string): number | string {
  if (!DAY.test(day)) return `expected days such as 2026-10-01..2026-12-31, not "${day}"`
  const ms = Date.parse(`${day}T00:00:00Z`)
  if (Number.isNaN(ms) || dayOf(ms) !== day) return `the calendar has no day ${day}`
  return wrongYear(Number(day.slice(0, 4))) ?? ms
}
