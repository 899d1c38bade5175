import type { Caller } from '../../mesh/call.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'

/**
 * Most abandoned calls to remember. While a call beyond this limit may still run, no caller gets messages without a
 * call id.
 */
export const MAX_ABANDONED = 1_000

/** How long a server that ignores cancellations may work on a call, in milliseconds. */
const LONGEST_MS: Millis = 10 * 60_000

/** Least time for a server to stop after reading a cancellation, in milliseconds. */
const STOPPING_MS: Millis = 5_000

/** A call without a waiting caller, possibly still running at the server. */
export interface AbandonedCall {
  /** Undefined after the caller has left. */
  caller: Caller | undefined
  readonly method: string
  /** How long the call had run when it was abandoned, in milliseconds. */
  readonly ranMs: Millis
  /** Until when the call is remembered. */
  readonly until: Millis
  /** The id of the latest request sent before the cancellation; undefined before the cancellation is sent. */
  sentAfter: number | undefined
  /** Until when the call counts as running; undefined while the cancellation may be unread. */
  stopsAt: Millis | undefined
}

/**
 * The abandoned calls of an upstream session. Servers need not answer a cancelled call, and nothing else shows its end.
 * A call counts as running until the server answers a later request: by then, the server has read the cancellation.
 * After that, the call counts for as long again as it had run. If the server mentions a call even later, all abandoned
 * calls count until they are answered or expire.
 */
export class Abandoned {
  readonly #clock: Pick<Clock, 'now'>
  /** By the gateway's ids, oldest first. */
  readonly #calls = new Map<number, AbandonedCall>()
  /** The calls with a possibly unread cancellation. */
  readonly #unread = new Set<AbandonedCall>()
  /** Until when calls beyond the limit may still run. */
  #forgottenUntil: Millis = -Infinity
  /** Whether the server has continued a call that no longer counted as running. */
  #goesOn = false

  constructor(clock: Pick<Clock, 'now'>) {
    this.#clock = clock
  }

  /** Whether a sent cancellation may be unread. */
  get isUnread(): boolean {
    for (const { sentAfter } of this.#unread) if (sentAfter !== undefined) return true
    return false
  }

  add(id: number, { caller, method, ranMs }: Pick<AbandonedCall, 'caller' | 'method' | 'ranMs'>): void {
    const until = this.#clock.now() + LONGEST_MS
    if (!this.#hasRoom()) {
      this.#forgottenUntil = until
      return
    }
    const call = { caller, method, ranMs, until, sentAfter: undefined, stopsAt: undefined }
    this.#calls.set(id, call)
    this.#unread.add(call)
  }

  /** Notes a sent cancellation; `lastId`: the id of the latest request sent before it. */
  sent(id: number, lastId: number): void {
    const call = this.#calls.get(id)
    if (call !== undefined) call.sentAfter = lastId
  }

  /** Notes an answer: the server has read all messages sent before the answered request. */
  heard(id: number): void {
    for (const call of this.#unread) {
      if (call.sentAfter === undefined || call.sentAfter >= id) continue
      this.#unread.delete(call)
      call.stopsAt = this.#clock.now() + Math.max(call.ranMs, STOPPING_MS)
    }
  }

  /** Notes that the server sent a message about an abandoned call. */
  goesOn(id: number): void {
    const call = this.#calls.get(id)
    if (call?.stopsAt === undefined) return
    const now = this.#clock.now()
    if (call.stopsAt <= now) this.#goesOn = true
    else call.stopsAt = Math.max(call.stopsAt, now + STOPPING_MS)
  }

  /** Removes an answered call and returns it; undefined for an unknown call. */
  answered(id: number): AbandonedCall | undefined {
    this.goesOn(id)
    const call = this.#calls.get(id)
    if (call !== undefined) this.#forget(id, call)
    return call
  }

  /** Removes a caller that has left from its abandoned calls. */
  left(caller: Caller): void {
    for (const call of this.#calls.values()) if (call.caller === caller) call.caller = undefined
  }

  /** Returns the caller of each call that counts as running; undefined for departed or unknown callers. */
  *callers(): Generator<Caller | undefined> {
    const now = this.#clock.now()
    if (this.#forgottenUntil > now) yield undefined
    for (const call of this.#calls.values()) if (this.#endOf(call) > now) yield call.caller
  }

  /** Longest time for which a call still counts as running, in milliseconds; 0 if no call does. */
  get leftMs(): Millis {
    const now = this.#clock.now()
    let end = Math.max(now, this.#forgottenUntil)
    for (const call of this.#calls.values()) end = Math.max(end, this.#endOf(call))
    return end - now
  }

  #endOf({ until, stopsAt }: AbandonedCall): Millis {
    return stopsAt === undefined || this.#goesOn ? until : Math.min(until, stopsAt)
  }

  /**
   * Returns whether there is room for another call. Forgets expired calls; if there is no room, also a call that no
   * longer counts as running.
   */
  #hasRoom(): boolean {
    const now = this.#clock.now()
    for (const [id, call] of this.#calls) {
      if (call.until > now) break
      this.#forget(id, call)
    }
    if (this.#calls.size < MAX_ABANDONED) return true
    for (const [id, call] of this.#calls) {
      if (this.#endOf(call) > now) continue
      this.#forget(id, call)
      return true
    }
    return false
  }

  #forget(id: number, call: AbandonedCall): void {
    this.#calls.delete(id)
    this.#unread.delete(call)
  }
}
