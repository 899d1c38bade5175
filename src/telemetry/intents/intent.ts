import { createHash } from 'node:crypto'
import type { Caller } from '../../mesh/call.ts'
import type { Millis } from '../../mesh/clock.ts'
import type { CallIntent } from '../../mesh/record.ts'

/** How a task ended, as reported. */
export type IntentOutcome = 'succeeded' | 'failed'

/** A task, from its first call until it is forgotten. */
export interface KnownIntent extends CallIntent {
  readonly tenant: string
  /** Source, tenant and id, with the arm for all but the first of several arms: there the name means another task. */
  readonly key: string
  /** The experiment arm of the task's calls, the first with several experiments; empty for none. */
  arm: string
  /** Arms of other experiments with calls of the task. */
  otherArms: readonly string[]
  calls: number
  /** Failed calls, as the agent saw the calls. */
  failed: number
  /** Calls and failed calls from before a pause, during which the task counted as over. */
  readonly callsBefore: number
  readonly failedBefore: number
  /** Calls not yet over; while there are any, the task is not over. */
  underWay: number
  /** When the task was opened, its last call ended, or the task itself ended. */
  lastAt: Millis
  /** When the task took its place among the open tasks. */
  placedAt: Millis
  isOpen: boolean
  /** Undefined until reported. */
  outcome: IntentOutcome | undefined
  /** The task that ended next. */
  next: KnownIntent | undefined
}

/** Key of a task. A source is a single word, a tenant a single line. */
export const keyOf = (source: string, tenant: string, id: string) => `${source} ${tenant}\n${id}`

/** All arms with calls of a task; the empty arm for none. */
export const armsOf = ({ arm, otherArms }: KnownIntent): readonly string[] => [arm, ...otherArms]

/** Opens a task. `earlier` is the last remembered task with its key. */
export function newIntent(
  { id, source, tenant, arm, key }: Pick<KnownIntent, 'id' | 'source' | 'tenant' | 'arm' | 'key'>,
  earlier: KnownIntent | undefined,
): KnownIntent {
  // Without a reported outcome the earlier task did not end but paused.
  const paused = earlier?.outcome === undefined ? earlier : undefined
  return {
    id,
    source,
    tenant,
    arm,
    otherArms: [],
    key,
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

/** Counts all calls since the last report: for a report, a pause does not divide a task. */
export const callsOf = ({ calls, callsBefore }: KnownIntent) => calls + callsBefore
export const failedOf = ({ failed, failedBefore }: KnownIntent) => failed + failedBefore

/** Selects some of the known tasks; a missing key is not compared. */
export interface IntentQuery {
  readonly intent: string
  readonly tenant?: string | undefined
  readonly source?: CallIntent['source'] | undefined
  readonly arm?: string | undefined
}

/** All tasks open to reports: open tasks, and for a while ended tasks. */
export class KnownIntents {
  /** By name; where several tasks share a name, also by key. */
  readonly #named = new Map<string, KnownIntent | Map<string, KnownIntent>>()
  /** The task that ended first. Ended tasks form a linked list: removing the oldest entry of a map gets ever slower. */
  #oldest: KnownIntent | undefined
  #latest: KnownIntent | undefined
  #over = 0
  #rememberMs: Millis = 600_000
  #max = 10_000

  /** Number of known tasks, including open tasks. */
  get size(): number {
    let size = 0
    for (const alike of this.#named.values()) size += alike instanceof Map ? alike.size : 1
    return size
  }

  /** From now on, remembers at most `max` ended tasks, each for `remember` milliseconds; 0 remembers none. */
  tune({ remember, max }: { readonly remember: Millis; readonly max: number }): void {
    this.#rememberMs = remember
    this.#max = max
  }

  get(id: string, key: string, now: Millis): KnownIntent | undefined {
    this.#purge(now)
    const alike = this.#named.get(id)
    if (alike instanceof Map) return alike.get(key)
    return alike?.key === key ? alike : undefined
  }

  /** Adds an open task, in place of any task with the same key. */
  add(intent: KnownIntent): void {
    const { id, key } = intent
    const alike = this.#named.get(id)
    if (alike instanceof Map) alike.set(key, intent)
    else if (alike === undefined || alike.key === key) this.#named.set(id, intent)
    else {
      const both = [alike, intent].map((one) => [one.key, one] as const)
      this.#named.set(id, new Map(both))
    }
  }

  end(intent: KnownIntent, now: Millis): void {
    intent.lastAt = now
    if (this.#latest === undefined) this.#oldest = intent
    else this.#latest.next = intent
    this.#latest = intent
    this.#over++
    this.#purge(now)
  }

  /** Returns the tasks that match the query: several where sources, tenants or arms share a name. */
  find({ intent: id, tenant, source, arm }: IntentQuery, now: Millis): KnownIntent[] {
    this.#purge(now)
    const alike = this.#named.get(id)
    if (alike === undefined) return []
    return [...(alike instanceof Map ? alike.values() : [alike])].filter(
      (known) =>
        (tenant === undefined || known.tenant === tenant) &&
        (source === undefined || known.source === source) &&
        (arm === undefined || armsOf(known).includes(arm)),
    )
  }

  #purge(now: Millis): void {
    for (let intent = this.#oldest; intent !== undefined; intent = this.#oldest) {
      if (this.#over <= this.#max && intent.lastAt + this.#rememberMs > now) return
      this.#oldest = intent.next
      if (this.#oldest === undefined) this.#latest = undefined
      intent.next = undefined
      this.#over--
      this.#forget(intent)
    }
  }

  /** Does nothing when another task has taken its place. */
  #forget(intent: KnownIntent): void {
    const { id, key } = intent
    const alike = this.#named.get(id)
    if (alike === intent) this.#named.delete(id)
    else if (alike instanceof Map && alike.get(key) === intent) {
      alike.delete(key)
      if (alike.size === 0) this.#named.delete(id)
    }
  }
}

const digests = new WeakMap<Caller, string>()

/** Stands for a session's id in readable output; opens no session. Computed once: a caller has one session. */
export function sessionDigest(caller: Caller, session: string): string {
  const known = digests.get(caller)
  if (known !== undefined) return known
  const digest = createHash('sha256').update(session).digest('hex').slice(0, 16)
  digests.set(caller, digest)
  return digest
}
