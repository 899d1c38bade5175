import type { Condition, Met } from '../../../judge/fail-on.ts'
import type { RuleSummary, TaskFinding } from '../../../judge/verdicts.ts'

/** A checked condition of `--fail-on`. */
export interface Checked {
  readonly condition: Condition
  readonly met: Met
}

/** The judgement of a recording. */
export interface Report {
  readonly file: string
  readonly startedAt: string
  readonly calls: number
  /** Calls without a task: nobody can judge these. */
  readonly strayCalls: number
  readonly tasks: number
  readonly baselineFile: string | undefined
  readonly notes: readonly string[]
  readonly rules: readonly RuleSummary[]
  readonly findings: readonly TaskFinding[]
  readonly conditions: readonly Checked[]
}

/** Returns a share in percent, such as `2.5 %`. */
export const percent = (share: number): string => `${(share * 100).toFixed(1)} %`

/** Returns the found tasks among the decidable tasks, in words. */
export const foundOf = ({ found, decidable }: RuleSummary): string =>
  decidable === 0 ? 'not decidable' : `${found} of ${decidable} tasks`

/** Returns the report as JSON. */
export const judgementJson = (report: Report): string => {
  const conditions = report.conditions.map(({ condition, met }) => ({ condition: condition.text, met }))
  return JSON.stringify({ ...report, conditions }, undefined, 2)
}
