import { z } from 'zod'
import { patternCost, type PatternCost } from './pattern-cost.ts'
import { charge } from './steps.ts'

/** Longest pattern that is tried, in characters. */
const MAX_PATTERN = 1_000

const { regexes } = z

/**
 * Patterns that servers made with zod send for dates, addresses and ids: known to be harmless, though they do not
 * look it.
 */
const harmless: ReadonlySet<string> = new Set(
  [
    ...Object.values(regexes).filter((known) => known instanceof RegExp),
    ...[{}, { offset: true }, { local: true }].map((options) => regexes.datetime(options)),
    ...[undefined, 1, 2, 3, 4, 5, 6, 7, 8].map((version) => regexes.uuid(version)),
    regexes.time({}),
  ].map(({ source }) => source),
)

const linear: PatternCost = { factor: 1, degree: 1 }

/**
 * A pattern of a stranger. Before each match it charges what it could cost at most, so that a pattern which takes
 * exponential time is never tried, and one of polynomial time on short texts only.
 */
class GuardedRegExp {
  readonly #regexp: RegExp
  readonly #cost: PatternCost | undefined

  constructor(pattern: string, flags: string) {
    this.#regexp = tolerant(pattern, flags)
    if (harmless.has(pattern)) this.#cost = linear
    else if (pattern.length <= MAX_PATTERN) this.#cost = patternCost(pattern)
  }

  test(text: string): boolean {
    charge(this.#cost === undefined ? Infinity : this.#cost.factor * (text.length + 1) ** this.#cost.degree)
    return this.#regexp.test(text)
  }

  toString(): string {
    return this.#regexp.toString()
  }
}

/** Many patterns escape what needs none, which only Unicode mode minds. */
function tolerant(pattern: string, flags: string): RegExp {
  try {
    return new RegExp(pattern, flags)
  } catch {
    return new RegExp(pattern)
  }
}

/** The regular expressions with which schemas are checked. */
export const guardedRegExp = Object.assign(
  (pattern: string, flags: string): GuardedRegExp => new GuardedRegExp(pattern, flags),
  { code: 'guardedRegExp' },
)
