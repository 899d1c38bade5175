import { createHash } from 'node:crypto'
import type { Caller } from '../../mesh/call.ts'
import type { Millis } from '../../mesh/clock.ts'
import type { CallIntent } from '../../mesh/record.ts'

/** How a task ended, as reported; `degraded`: with less than asked for, which the agent knows and says. */
export type IntentOutcome = 'succeeded' | 'degraded' | 'failed'

/** A task of an agent, from its first call until the gateway forgets it. */
export interface KnownIntent extends CallIntent {
  readonly tenant: string
  /**
   * Key from source, tenant and id. If the same name means several tasks in several arms, all keys except the first
   * include the arm.
   */
  readonly key: string
  /**
   * The experiment arm of the task's calls; the first arm if several experiments have calls of the task; empty for
   * none.
   */
  arm: string
  /** Arms of further experiments with calls of the task. */
  otherArms: readonly string[]
  calls: number
  /** Number of calls that failed for the agent. */
  failed: number
  /** Number of calls, and of failed calls, before a pause that was long enough to end the task. */
  readonly callsBefore: number
  readonly failedBefore: number
  /** Number of calls in progress; the task does not end while there are any. */
  underWay: number
  /** Time of the latest event: the task began, its last call ended, or the task itself ended. */
  lastAt: Millis
  /** Time when the task last moved to the end of the queue of open tasks. */
  placedAt: Millis
  isOpen: boolean
  /** The reported outcome; undefined before a report. */
  outcome: IntentOutcome | undefined
  /** The ended task after this task in the linked list. */
  next: KnownIntent | undefined
}

/**
 * Returns the key of a task. Different tasks have different keys, because a source is a single word and a tenant is a
 * single line.
 */
export const keyOf = (source: string, tenant: string, id: string) => `${source} ${tenant}\n${id}`

/** Returns all arms with calls of a task; the empty arm if there are none. */
export const armsOf = ({ arm, otherArms }: KnownIntent): readonly string[] => [arm, ...otherArms]

/** Returns a new open task. `earlier` is the remembered task with the same key, if any. */
export function newIntent(
  { id, source, tenant, arm, key }: Pick<KnownIntent, 'id' | 'source' | 'tenant' | 'arm' | 'key'>,
  earlier: KnownIntent | undefined,
): KnownIntent {
  // An earlier task without a reported outcome has only paused, so its calls count too.
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

/** Returns the number of all calls of a task, including calls before a pause. */
export const callsOf = ({ calls, callsBefore }: KnownIntent) => calls + callsBefore
export const failedOf = ({ failed, failedBefore }: KnownIntent) => failed + failedBefore

/** Selects some of the known tasks; a missing key is not compared. */
export interface IntentQuery {
  readonly intent: string
  readonly tenant?: string | undefined
  readonly source?: CallIntent['source'] | undefined
  readonly arm?: string | undefined
}

/** All tasks that a report can name: open tasks, and ended tasks that are still remembered. */
export class KnownIntents {
  /** The tasks by name; if several tasks have one name, a map by key. */
  readonly #named = new Map<string, KnownIntent | Map<string, KnownIntent>>()
  /**
   * The first ended task of a linked list, from the oldest to the latest. A map is not used, because removing its
   * oldest entry gets slower over time.
   */
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

  /** Sets the limits: at most `max` ended tasks, each for `remember` milliseconds; 0: no ended tasks. */
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

  /** Adds an open task; replaces a task with the same key. */
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

  /**
   * Returns the tasks that match the query; several if tasks of different sources, tenants or arms have the same name.
   */
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

  /** Removes a task; does nothing when another task has replaced it. */
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

/**
 * Returns a digest of a session's id for readable output; the digest gives no access to the session. Cached for each
 * caller, because a caller has one session.
 */
export function sessionDigest(caller: Caller, session: string): string {
  const known = digests.get(caller)
  if (known !== undefined) return known
  const digest = createHash('sha256').update(session).digest('hex').slice(0, 16)
  digests.set(caller, digest)
  return digest
}
