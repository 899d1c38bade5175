import type { Check, Results } from './suite.ts'

/** The result of one scenario. */
export interface Row {
  readonly scenario: string
  readonly scored: boolean
  /** Checks with a verdict, directly or through the gateway. */
  readonly total: number
  readonly direct: number
  readonly through: number
}

export interface Comparison {
  readonly rows: readonly Row[]
  /** Checks that pass both ways. */
  readonly passed: number
  /** One line for every check that the gateway breaks, and for every scored check that fails without the gateway. */
  readonly failures: readonly string[]
}

export type Judged = Pick<Check, 'status' | 'errorMessage'>

/** Compares the findings without the gateway with the findings through the gateway. */
export function compare(direct: Results, through: Results, scored: ReadonlySet<string>): Comparison {
  const rows: Row[] = []
  const failures: string[] = []
  let passed = 0
  for (const scenario of new Set([...direct.keys(), ...through.keys()])) {
    const before = judge(direct.get(scenario))
    const after = judge(through.get(scenario))
    const ids = [...new Set([...before.keys(), ...after.keys()])]
    for (const id of ids) {
      const failure = reason(before.get(id), after.get(id), scored.has(scenario))
      if (failure !== undefined) failures.push(`${scenario}, ${id}: ${failure}`)
      else if (passes(before.get(id))) passed++
    }
    rows.push({
      scenario,
      scored: scored.has(scenario),
      total: ids.length,
      direct: ids.filter((id) => passes(before.get(id))).length,
      through: ids.filter((id) => passes(after.get(id))).length,
    })
  }
  return { rows, passed, failures }
}

const passes = (check: Judged | undefined) => check?.status === 'SUCCESS'

/** Returns the worst finding of each check: the suite may report a check more than once. */
export function judge(checks: readonly Check[] = []): ReadonlyMap<string, Judged> {
  const severity = { INFO: 0, SKIPPED: 0, SUCCESS: 1, WARNING: 2, FAILURE: 3 }
  const worst = new Map<string, Judged>()
  for (const check of checks) {
    const rank = severity[check.status]
    if (rank > severity[worst.get(check.id)?.status ?? 'INFO']) worst.set(check.id, check)
  }
  return worst
}

/** Returns why a check counts as failed; undefined if the check passed. */
function reason(before: Judged | undefined, after: Judged | undefined, scored: boolean): string | undefined {
  if (scored && before?.status === 'FAILURE') return `fails without the gateway: ${before.errorMessage ?? ''}`
  if (passes(before) && after === undefined) return 'is missing through the gateway'
  if (passes(before) && !passes(after)) return `fails through the gateway: ${after?.errorMessage ?? ''}`
  if (before === undefined && after?.status === 'FAILURE') {
    return `fails only through the gateway: ${after.errorMessage ?? ''}`
  }
  return undefined
}
