import { didYouMean } from '../units/suggest.ts'
import { type RuleName, ruleNames } from './index.ts'
import type { RuleSummary } from './verdicts.ts'

/** A condition on a rule: more found tasks than a bound. */
export interface Condition {
  /** As written. */
  readonly text: string
  readonly rule: RuleName
  /** `>` or `>=`. */
  readonly isInclusive: boolean
  readonly bound:
    | { readonly kind: 'tasks'; readonly tasks: number }
    /** A share of the decidable tasks, in [0, 1]. */
    | { readonly kind: 'share'; readonly share: number }
    /** The baseline's share, and a number of points added, in [0, 1]. */
    | { readonly kind: 'baseline'; readonly more: number }
}

/** Explains why a text holds no conditions. */
export class ConditionError extends Error {}

const CONDITION = /^([a-z_]+)\s*(>=?)\s*(\S.*)$/
const TASKS = /^\d{1,15}$/
const SHARE = /^(\d+(?:\.\d+)?)\s*%$/
const BASELINE = /^baseline(?:\s*\+\s*(\d+(?:\.\d+)?)\s*%)?$/

/** Most conditions in a text. */
const MOST = 50

/** Reads conditions such as `duplicate_write>0,runaway>baseline+2%`. Throws a `ConditionError`. */
export function readConditions(text: string): readonly Condition[] {
  const parts = text.split(',').map((part) => part.trim())
  if (parts.length > MOST)
    throw new ConditionError(`expected at most ${MOST} conditions, not ${parts.length}`)
  return parts.map(readCondition)
}

function readCondition(text: string): Condition {
  const [, name = '', sign = '', bound = ''] = CONDITION.exec(text) ?? []
  if (name === '')
    throw new ConditionError(
      `expected conditions such as duplicate_write>0 or runaway>baseline+2%, not "${text}"`,
    )
  const rule = ruleNames.find((one) => one === name)
  if (rule === undefined)
    throw new ConditionError(
      `there is no rule "${name}"${didYouMean(name, ruleNames)}; rules: ${ruleNames.join(', ')}`,
    )
  return { text, rule, isInclusive: sign === '>=', bound: readBound(bound, text) }
}

function readBound(bound: string, text: string): Condition['bound'] {
  if (TASKS.test(bound)) return { kind: 'tasks', tasks: Number(bound) }
  const [, percent] = SHARE.exec(bound) ?? []
  if (percent !== undefined) return { kind: 'share', share: shareOf(percent, text) }
  const baseline = BASELINE.exec(bound)
  if (baseline !== null) return { kind: 'baseline', more: shareOf(baseline[1] ?? '0', text) }
  throw new ConditionError(
    `expected a number of tasks, a share such as 5%, or baseline+2% as the bound, not "${bound}" in "${text}"`,
  )
}

function shareOf(percent: string, text: string): number {
  const share = Number(percent) / 100
  if (share <= 1) return share
  throw new ConditionError(`expected at most 100%, not ${percent}% in "${text}"`)
}

/** Whether a condition is met; `unknown` if no task is decidable by its rule. */
export type Met = 'met' | 'not_met' | 'unknown'

/** Checks a condition. A condition about the baseline compares shares, and needs a baseline. */
export function check({ rule, isInclusive, bound }: Condition, summaries: readonly RuleSummary[]): Met {
  const { found, decidable, baseline } = summaries.find((one) => one.rule === rule)!
  if (decidable === 0) return 'unknown'
  const isOver = (value: number, limit: number) =>
    isInclusive ? value >= limit - NOISE : value > limit + NOISE
  const share = found / decidable
  switch (bound.kind) {
    case 'tasks':
      return isOver(found, bound.tasks) ? 'met' : 'not_met'
    case 'share':
      return isOver(share, bound.share) ? 'met' : 'not_met'
    case 'baseline':
      if (baseline === undefined || baseline.decidable === 0) return 'unknown'
      return isOver(share - baseline.found / baseline.decidable, bound.more) ? 'met' : 'not_met'
  }
}

/** Rounding errors of differences of shares. */
const NOISE = 1e-12
