import { createHash } from 'node:crypto'
import type { Caller } from '../../mesh/call.ts'
import type { Millis } from '../../mesh/clock.ts'
import type { CallIntent } from '../../mesh/record.ts'

/** How a task ended, as whoever gave it says. */
export type IntentOutcome = 'succeeded' | 'failed'

/** A task, from its first call until it is forgotten. */
export interface KnownIntent extends CallIntent {
  readonly tenant: string
  /** Source, tenant and id, and the arm for all but the first of several arms: the same name is another task there. */
  readonly key: string
  /** The arm of an experiment that calls of it are in, the first one where there are several experiments; empty for none. */
  arm: string
  /** Arms of other experiments that calls of it are in. */
  otherArms: readonly string[]
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

/** All arms that calls of a task are in; the empty one for none. */
export const armsOf = ({ arm, otherArms }: KnownIntent): readonly string[] => [arm, ...otherArms]

/** A task that opens now. `earlier` is the last one with its key, if that is remembered. */
export function newIntent(
  { id, source, tenant, arm, key }: Pick<KnownIntent, 'id' | 'source' | 'tenant' | 'arm' | 'key'>,
  earlier: KnownIntent | undefined,
): KnownIntent {
  // If nobody has said how it ended, it did not: there was a pause.
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

/** Counts all calls since the last report: a pause divides no task for whoever says how the task ended. */
export const callsOf = ({ calls, callsBefore }: KnownIntent) => calls + callsBefore
export const failedOf = ({ failed, failedBefore }: KnownIntent) => failed + failedBefore

/** Selects some of the known tasks; a key that is left out is not compared. */
export interface IntentQuery {
  readonly intent: string
  readonly tenant?: string | undefined
  readonly source?: CallIntent['source'] | undefined
  readonly arm?: string | undefined
}

/** All tasks that somebody may yet say something about: those that are open, and for a while those that are over. */
export class KnownIntents {
  /** By name; where several share one, by key as well. */
  readonly #named = new Map<string, KnownIntent | Map<string, KnownIntent>>()
  /** The task that ended first. Ended tasks are linked in order: taking the oldest out of a map costs ever more. */
  #oldest: KnownIntent | undefined
  #latest: KnownIntent | undefined
  #over = 0
  #rememberMs: Millis = 600_000
  #max = 10_000

  /** How many are known, open ones included. */
  get size(): number {
    let size = 0
    for (const alike of this.#named.values()) size += alike instanceof Map ? alike.size : 1
    return size
  }

  /** From now on, at most `max` that are over are remembered, each for `remember` milliseconds; 0: not at all. */
  tune({ remember, max }: { readonly remember: Millis; readonly max: number }): void {
    this.#rememberMs = remember
    this.#max = max
  }

  /** The one that has this key, if it is known. */
  get(id: string, key: string, now: Millis): KnownIntent | undefined {
    this.#purge(now)
    const alike = this.#named.get(id)
    if (alike instanceof Map) return alike.get(key)
    return alike?.key === key ? alike : undefined
  }

  /** One opens, in place of the one that has its key. */
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

  /** A task has ended. */
  end(intent: KnownIntent, now: Millis): void {
    intent.lastAt = now
    if (this.#latest === undefined) this.#oldest = intent
    else this.#latest.next = intent
    this.#latest = intent
    this.#over++
    this.#purge(now)
  }

  /** Returns the tasks that match the query: more than one where several sources, tenants or arms use the same name. */
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

  /** Unless another one has taken its place. */
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

/** Stands for the id of a session wherever people read: it tells sessions apart, and opens none. Made once: a caller has one session. */
export function sessionDigest(caller: Caller, session: string): string {
  const known = digests.get(caller)
  if (known !== undefined) return known
  const digest = createHash('sha256').update(session).digest('hex').slice(0, 16)
  digests.set(caller, digest)
  return digest
}
