import { callsOf, failedOf, type IntentOutcome, type KnownIntent } from './intent.ts'
import type { IntentQuery } from './known.ts'

/** Somebody says how a task ended. */
export interface IntentReport extends IntentQuery {
  readonly outcome: IntentOutcome
}

/** What the gateway saw of a task. */
export interface IntentFacts {
  readonly source: KnownIntent['source']
  readonly tenant: string
  readonly arm: string
  readonly calls: number
  /** Calls that went wrong, as the agent saw them. */
  readonly failed: number
  /** Whether it is over: it is not as long as calls of it are under way. */
  readonly over: boolean
}

/** Why a report is not counted. */
export type Unlinked =
  /** No such task is known, or is any more. */
  | 'unknown'
  /** Several tasks have this name. */
  | 'ambiguous'
  /** The opposite was reported before. */
  | 'contradicted'

export type ReportAnswer =
  | {
      readonly linked: true
      /** Whether the same was reported before: it is counted once. */
      readonly repeated: boolean
      readonly task: IntentFacts
    }
  | {
      readonly linked: false
      readonly reason: Unlinked
      readonly error: string
      /** The tasks that it may be about; not more than a few. */
      readonly tasks: readonly IntentFacts[]
    }

/** Most tasks that an answer shows. */
const SHOWN = 10

export function factsOf(intent: KnownIntent): IntentFacts {
  const { source, tenant, arm, isOpen } = intent
  return { source, tenant, arm, calls: callsOf(intent), failed: failedOf(intent), over: !isOpen }
}

/** Why a report that fits these tasks cannot be counted; undefined if it fits one, and nothing speaks against it. */
export function objection(
  { outcome }: IntentReport,
  found: readonly KnownIntent[],
): (ReportAnswer & { linked: false }) | undefined {
  const tasks = found.slice(0, SHOWN).map(factsOf)
  const unlinked = (reason: Unlinked, error: string) => ({ linked: false, reason, error, tasks }) as const
  const [intent] = found
  if (intent === undefined) return unlinked('unknown', 'no task of this name is open or remembered')
  if (found.length > 1)
    return unlinked('ambiguous', `${found.length} tasks have this name: say source, tenant or both`)
  if (intent.outcome === undefined || intent.outcome === outcome) return undefined
  return unlinked(
    'contradicted',
    `it was reported before that the task ${intent.outcome}: the first report counts`,
  )
}
