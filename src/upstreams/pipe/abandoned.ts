import type { Caller } from '../../mesh/call.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'

/**
 * Most calls of one upstream session that are remembered after they were given up. When more of them count, it cannot be told
 * on whose behalf the server speaks: what names no call is nobody's for as long as one of them may count.
 */
export const MAX_ABANDONED = 1_000

/** How long a server that does not heed cancellations may be at work for a call, in milliseconds. */
const LONGEST_MS: Millis = 10 * 60_000

/** Least time that a server has to stop once the server has read a cancellation, in milliseconds. */
const STOPPING_MS: Millis = 5_000

/** A call that nobody waits for, and that the server may still be at work on. */
export interface AbandonedCall {
  /** Undefined when it has left. */
  caller: Caller | undefined
  readonly method: string
  /** How long it had run, in milliseconds. */
  readonly ranMs: Millis
  /** Until when it is remembered. */
  readonly until: Millis
  /** The latest request that may have overtaken the cancellation; undefined until the cancellation was sent. */
  sentAfter: number | undefined
  /** Until when it counts; undefined while the server may not have read the cancellation. */
  stopsAt: Millis | undefined
}

/**
 * The calls of one upstream session that were given up. Servers need not answer a call that was cancelled, and nothing else
 * tells when the work ends. A call counts until the server has answered a later request, and so has read the cancellation, and then for
 * as long again as it had run. When a server speaks of a call after that, all of its calls count until they are answered.
 */
export class Abandoned {
  readonly #clock: Pick<Clock, 'now'>
  /** By our own ids, oldest first. */
  readonly #calls = new Map<number, AbandonedCall>()
  /** The calls whose cancellation the server may not have read. */
  readonly #unread = new Set<AbandonedCall>()
  /** Until when calls may count that are not remembered. */
  #forgottenUntil: Millis = -Infinity
  /** Whether the server has gone on with a call for longer than was granted. */
  #goesOn = false

  constructor(clock: Pick<Clock, 'now'>) {
    this.#clock = clock
  }

  /** Whether a cancellation was sent that the server may not have read. */
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

  /** The cancellation of a call was sent, when `lastId` was the latest request. */
  sent(id: number, lastId: number): void {
    const call = this.#calls.get(id)
    if (call !== undefined) call.sentAfter = lastId
  }

  /** The server has answered a request, and so has read all that was sent before that request. */
  heard(id: number): void {
    for (const call of this.#unread) {
      if (call.sentAfter === undefined || call.sentAfter >= id) continue
      this.#unread.delete(call)
      call.stopsAt = this.#clock.now() + Math.max(call.ranMs, STOPPING_MS)
    }
  }

  /** The server speaks of a call as of one that goes on. */
  goesOn(id: number): void {
    const call = this.#calls.get(id)
    if (call?.stopsAt === undefined) return
    const now = this.#clock.now()
    if (call.stopsAt <= now) this.#goesOn = true
    else call.stopsAt = Math.max(call.stopsAt, now + STOPPING_MS)
  }

  /** The server has answered a call all the same: the call counts no more. Undefined for one that is not remembered. */
  answered(id: number): AbandonedCall | undefined {
    this.goesOn(id)
    const call = this.#calls.get(id)
    if (call !== undefined) this.#forget(id, call)
    return call
  }

  /** A caller is gone for good. Its calls go on, on nobody's behalf. */
  left(caller: Caller): void {
    for (const call of this.#calls.values()) if (call.caller === caller) call.caller = undefined
  }

  /** For whom the server may be at work: a caller for each call that counts. Undefined: for callers that have left, or that nobody knows. */
  *callers(): Generator<Caller | undefined> {
    const now = this.#clock.now()
    if (this.#forgottenUntil > now) yield undefined
    for (const call of this.#calls.values()) if (this.#endOf(call) > now) yield call.caller
  }

  /** For how long calls count still, at the latest, in milliseconds; 0 when none counts. */
  get leftMs(): Millis {
    const now = this.#clock.now()
    let end = Math.max(now, this.#forgottenUntil)
    for (const call of this.#calls.values()) end = Math.max(end, this.#endOf(call))
    return end - now
  }

  #endOf({ until, stopsAt }: AbandonedCall): Millis {
    return stopsAt === undefined || this.#goesOn ? until : Math.min(until, stopsAt)
  }

  /** Forgets what is over, and where all places are taken one call that counts no more. */
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
