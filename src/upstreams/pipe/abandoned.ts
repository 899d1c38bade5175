import type { Caller } from '../../mesh/call.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'

/**
 * Most abandoned calls to remember. Beyond, messages without call id belong to nobody while a forgotten call counts.
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
  /** How long the call had run, in milliseconds. */
  readonly ranMs: Millis
  /** Until when the call is remembered. */
  readonly until: Millis
  /** The latest request possibly ahead of the cancellation; undefined before the cancellation is sent. */
  sentAfter: number | undefined
  /** Until when the call counts; undefined while the cancellation may be unread. */
  stopsAt: Millis | undefined
}

/**
 * The abandoned calls of an upstream session. Servers need not answer a cancelled call, and nothing else shows its end.
 * A call counts until the server has answered a later request, and so has read the cancellation. Then the call counts
 * for as long again as it had run. When a server mentions a call later still, all its calls count until answered.
 */
export class Abandoned {
  readonly #clock: Pick<Clock, 'now'>
  /** By the gateway's ids, oldest first. */
  readonly #calls = new Map<number, AbandonedCall>()
  /** The calls with a possibly unread cancellation. */
  readonly #unread = new Set<AbandonedCall>()
  /** Until when forgotten calls may count. */
  #forgottenUntil: Millis = -Infinity
  /** Whether the server has continued a call beyond its granted time. */
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

  /** Notes a sent cancellation; `lastId`: the latest request by then. */
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

  /** Notes a message about a continuing call. */
  goesOn(id: number): void {
    const call = this.#calls.get(id)
    if (call?.stopsAt === undefined) return
    const now = this.#clock.now()
    if (call.stopsAt <= now) this.#goesOn = true
    else call.stopsAt = Math.max(call.stopsAt, now + STOPPING_MS)
  }

  /** Removes an answered call. Returns undefined for a forgotten call. */
  answered(id: number): AbandonedCall | undefined {
    this.goesOn(id)
    const call = this.#calls.get(id)
    if (call !== undefined) this.#forget(id, call)
    return call
  }

  /** A caller has left. Its calls continue for nobody. */
  left(caller: Caller): void {
    for (const call of this.#calls.values()) if (call.caller === caller) call.caller = undefined
  }

  /** Returns the caller of each counting call; undefined for departed or unknown callers. */
  *callers(): Generator<Caller | undefined> {
    const now = this.#clock.now()
    if (this.#forgottenUntil > now) yield undefined
    for (const call of this.#calls.values()) if (this.#endOf(call) > now) yield call.caller
  }

  /** Longest remaining time of counting calls, in milliseconds; 0 without any. */
  get leftMs(): Millis {
    const now = this.#clock.now()
    let end = Math.max(now, this.#forgottenUntil)
    for (const call of this.#calls.values()) end = Math.max(end, this.#endOf(call))
    return end - now
  }

  #endOf({ until, stopsAt }: AbandonedCall): Millis {
    return stopsAt === undefined || this.#goesOn ? until : Math.min(until, stopsAt)
  }

  /** Forgets expired calls, and if all places are taken, a call no longer counting. */
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
