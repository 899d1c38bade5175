import { z } from 'zod'
import { duration } from '../units/duration.ts'
import { suggest } from '../units/suggest.ts'
import type { Bound } from './judge.ts'
import { type Subject, subjects, type Unit } from './subjects.ts'

/** A measurable statement, such as `p95 < 500ms`. */
export interface Claim<About extends Subject = Subject> extends Bound {
  /** The text of the claim as written. */
  readonly text: string
  readonly subject: About
}

/**
 * Also matches names with capitals or dashes, and values with spaces, so that the problem can say which part is wrong.
 */
const claimPattern = /^([\w-]+)\s*(<=|>=|<|>|=)\s*(\S.*)$/

/** Parses a claim about a subject in `accepted`; returns a `problem` for any other text. */
export function parseClaim<About extends Subject>(
  text: string,
  accepted: readonly About[],
): Claim<About> | { readonly problem: string } {
  const [, name = '', operator, written = ''] = claimPattern.exec(text.trim()) ?? []
  if (operator === undefined)
    return { problem: `expected a claim: ${accepted.join(', ')}, then <, <=, >, >= or =, then a value` }
  const subject = accepted.find((known) => known === name)
  if (subject === undefined) {
    const meant = suggest(name, accepted)
    return {
      problem: `there is no "${name}"; ${meant === undefined ? `there are ${accepted.join(', ')}` : `did you mean "${meant}"?`}`,
    }
  }
  const { unit } = subjects[subject]
  const value = numberIn(unit, written)
  if (value === undefined)
    return { problem: `"${written}" is not a value of ${name}: expected ${examples[unit]}` }
  return { text: text.trim(), subject, operator: operator as Bound['operator'], value }
}

/** Schema of 1 to 16 claims about subjects in `accepted`, each of at most 100 characters. */
export const claims = <About extends Subject>(accepted: readonly About[]) =>
  z
    .array(
      z
        .string()
        .max(100)
        .transform((given, context): Claim<About> => {
          const read = parseClaim(given, accepted)
          if (!('problem' in read)) return read
          context.addIssue({ code: 'custom', message: read.problem })
          return z.NEVER
        }),
    )
    .min(1)
    .max(16)

/** Example values by unit, for messages. */
export const examples: Readonly<Record<Unit, string>> = {
  ms: 'a duration such as 500ms or 2s',
  share: 'a share such as 1% or 0.01',
  count: 'a number such as 1.5',
  state: 'up or down',
}

/** Parses a value of a claim or gate; undefined when invalid. */
export function numberIn(unit: Unit, written: string | number): number | undefined {
  if (unit === 'state') return written === 'up' ? 1 : written === 'down' ? 0 : undefined
  const text = String(written).trim()
  if (unit === 'ms') {
    const read = duration().safeParse(text)
    return decimal(text) ?? (read.success ? read.data : undefined)
  }
  const isPercent = text.endsWith('%')
  if (isPercent && unit !== 'share') return undefined
  const value = decimal(isPercent ? text.slice(0, -1) : text)
  if (value === undefined) return undefined
  const share = isPercent ? value / 100 : value
  return unit === 'share' && share > 1 ? undefined : share
}

/** Largest accepted number: a larger number is a typing error. */
const MOST = 1e9

function decimal(text: string): number | undefined {
  const value = /^\d*\.?\d+$/.test(text) ? Number(text) : NaN
  return value <= MOST ? value : undefined
}
