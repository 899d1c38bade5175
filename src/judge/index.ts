import { blindRetry } from './blind-retry.ts'
import { corruptValueUsed } from './corrupt-value-used.ts'
import { duplicateWrite } from './duplicate-write.ts'
import { falseSuccess } from './false-success.ts'
import { ignoredPartial } from './ignored-partial.ts'
import { ignoredRetryAfter } from './ignored-retry-after.ts'
import type { Rule } from './rule.ts'
import { runaway } from './runaway.ts'

/** All rules by name, in the order of reports. Reports, conditions and SARIF are loops over this registry. */
export const rules = {
  runaway,
  blind_retry: blindRetry,
  duplicate_write: duplicateWrite,
  corrupt_value_used: corruptValueUsed,
  false_success: falseSuccess,
  ignored_partial: ignoredPartial,
  ignored_retry_after: ignoredRetryAfter,
} as const satisfies Readonly<Record<string, Rule>>

export type RuleName = keyof typeof rules

export const ruleNames = Object.keys(rules) as readonly RuleName[]
