import type { Millis } from '../../mesh/clock.ts'
import type { CallIntent } from '../../mesh/record.ts'

/** How a task ended, as whoever gave it says. */
export type IntentOutcome = 'succeeded' | 'failed'

/** A task, from its first call until it is forgotten. */
export interface KnownIntent extends CallIntent {
  readonly tenant: string
  /** Source, tenant and id: the same name is another task for another tenant. */
  readonly key: string
  /** Where it is counted: that of its first call. */
  readonly arm: string
  calls: number
  /** Calls that went wrong, as the agent saw them. */
  failed: number
  /** Calls and failed ones from before a pause in which it was taken to be over. */
  readonly callsBefore: number
  readonly failedBefore: number
  /** Calls that are not over: as long as there are any, the task is not. */
  underWay: number
  /** When it was opened, its last call ended, or it ended itself. */
  lastAt: Millis
  /** When it took its place among those that are open. */
  placedAt: Millis
  isOpen: boolean
  /** Undefined until somebody says so. */
  outcome: IntentOutcome | undefined
  /** The one that ended after it. */
  next: KnownIntent | undefined
}

/** Key of a task. A source is one word, a tenant is one line. */
export const keyOf = (source: string, tenant: string, id: string) => `${source} ${tenant}\n${id}`

/** A task that opens now. `earlier` is the last one with its key, if that is remembered. */
export function newIntent(
  { id, source, tenant, arm }: Pick<KnownIntent, 'id' | 'source' | 'tenant' | 'arm'>,
  earlier: KnownIntent | undefined,
): KnownIntent {
  // If nobody has said how it ended, it did not: there was a pause.
  const paused = earlier?.outcome === undefined ? earlier : undefined
  return {
    id,
    source,
    tenant,
    arm,
    key: keyOf(source, tenant, id),
    calls: 0,
    failed: 0,
    callsBefore: paused === undefined ? 0 : callsOf(paused),
    failedBefore: paused === undefined ? 0 : failedOf(paused),
    underWay: 0,
    lastAt: 0,
    placedAt: 0,
    isOpen: true,
    outcome: undefined,
    next: undefined,
  }
}

/** Of all calls since the last report: a pause divides no task for whoever says how it ended. */
export const callsOf = ({ calls, callsBefore }: KnownIntent) => calls + callsBefore
export const failedOf = ({ failed, failedBefore }: KnownIntent) => failed + failedBefore
