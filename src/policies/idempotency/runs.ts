import { LRUCache } from 'lru-cache'
import { type Call, type Channel, derive, type Outcome, type Service } from '../../mesh/call.ts'
import type { Signal } from '../../mesh/cancel.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import type { DurableRecords } from '../../mesh/durable.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import type { TimeLimit } from '../../mesh/time-limit.ts'
import { LargeMessage } from '../../protocol/large-message.ts'
import { formatDuration } from '../../units/duration.ts'
import { inTurn } from '../state/in-turn.ts'
import {
  interrupted,
  type StoredOutcome,
  readStored,
  replayed,
  shared,
  type Stored,
} from './stored-outcome.ts'

/** A call that was started under a key. */
interface Run {
  readonly fingerprint: string
  readonly outcome: Promise<Outcome>
}

/** A call that is over. */
interface Ended extends Stored {
  /** When it is forgotten. */
  readonly expiresAt: Millis
}

/**
 * The calls of one server that have a key: those that run, which are never forgotten, and those that are over,
 * in the order in which they ended. What is known of them outlives the process where there are `records` for it.
 */
export class Runs {
  readonly #clock: Clock
  readonly #underWay = new Map<string, Run>()
  /** Its limits come with each call, as reloads may change them. */
  readonly #over = new LRUCache<string, Ended>({
    maxSize: Number.MAX_SAFE_INTEGER,
    sizeCalculation: () => 1,
  })
  #bytes = 0
  #evicted = 0
  #records: DurableRecords | undefined

  constructor(clock: Clock, records?: DurableRecords) {
    this.#clock = clock
    this.#records = records
    const offset = clock.now() - clock.wall()
    for (const { id, value, expiresAt } of records?.take() ?? []) {
      const stored = readStored(value)
      if (stored === undefined) records?.delete(id)
      else this.#add(id, { ...stored, expiresAt: expiresAt + offset })
    }
  }

  find(id: string): Run | Ended | undefined {
    const running = this.#underWay.get(id)
    if (running !== undefined) return running
    const run = this.#over.peek(id)
    if (run === undefined || run.expiresAt > this.#clock.now()) return run
    this.#drop(id, run)
    return undefined
  }

  /** Makes room for one call more; false when `maxKeys` are still under way. */
  makeRoom(maxKeys: number): boolean {
    while (this.#underWay.size + this.#over.size >= maxKeys && this.#over.size > 0) this.#evictOldest()
    return this.#underWay.size < maxKeys
  }

  /**
   * Notes for a later process that a call may have run, for `ms` at most. The call must not be sent before that has
   * resolved; undefined when there is nothing to wait for.
   */
  announce(id: string, fingerprint: string, ms: Millis): Promise<void> | undefined {
    return this.#records?.put(id, { fingerprint, kept: interrupted }, this.#clock.wall() + ms)
  }

  begin(id: string, run: Run): void {
    this.#underWay.set(id, run)
  }

  /** The call is over, and is remembered for `ms`; `maxSize` is how many bytes of answers may be kept. */
  finish(id: string, fingerprint: string, kept: StoredOutcome, ms: Millis, maxSize: number): void {
    this.#underWay.delete(id)
    this.#dropExpired()
    this.#add(id, { fingerprint, kept, expiresAt: this.#clock.now() + ms })
    // Who asks for it is not kept waiting: should it get lost, the call is still known to have run.
    void this.#records?.put(id, { fingerprint, kept }, this.#clock.wall() + ms)
    while (this.#bytes > maxSize) this.#evictOldest()
  }

  /** The call is over, and may run again. */
  forget(id: string): void {
    this.#underWay.delete(id)
    this.#records?.delete(id)
  }

  /** Nobody new will find this: a later process has to know no more than this one. */
  close(): void {
    for (const id of this.#over.keys()) this.#records?.delete(id)
    for (const id of this.#underWay.keys()) this.#records?.delete(id)
    this.#records = undefined
  }

  /** For the admin API: how many calls run, how many answers are kept, their size, and how many had to go early. */
  snapshot() {
    return {
      underWay: this.#underWay.size,
      over: this.#over.size,
      bytes: this.#bytes,
      evicted: this.#evicted,
    }
  }

  #add(id: string, ended: Ended): void {
    this.#over.set(id, ended)
    this.#bytes += bytesOf(ended)
  }

  /** Nobody asks for most keys again: those whose time is over would stay until there is no room for others. */
  #dropExpired(): void {
    const now = this.#clock.now()
    for (let oldest = this.#oldest(); oldest !== undefined; oldest = this.#oldest()) {
      if (oldest.ended.expiresAt > now) return
      this.#drop(oldest.id, oldest.ended)
    }
  }

  #evictOldest(): void {
    const oldest = this.#oldest()
    if (oldest === undefined) return
    if (oldest.ended.expiresAt > this.#clock.now()) this.#evicted++
    this.#drop(oldest.id, oldest.ended)
  }

  #oldest(): { readonly id: string; readonly ended: Ended } | undefined {
    const { value: id } = this.#over.rkeys().next()
    const ended = id === undefined ? undefined : this.#over.peek(id)
    return id === undefined || ended === undefined ? undefined : { id, ended }
  }

  #drop(id: string, run: Ended): void {
    this.#over.delete(id)
    this.#bytes -= bytesOf(run)
    this.#records?.delete(id)
  }
}

function bytesOf({ kept }: Ended): number {
  return kept.kind === 'answered' ? kept.bytes : 0
}

interface DetachedParts {
  readonly call: Call
  readonly next: Service
  readonly channel: Channel
  readonly limit: TimeLimit
  readonly limitMs: Millis
  readonly clock: Clock
}

/** Nobody ends such a call but its time limit. */
const never: Signal = {
  aborted: false,
  reason: undefined,
  addEventListener: () => undefined,
  removeEventListener: () => undefined,
}

/**
 * Runs a call apart from its caller: neither the caller's going nor its deadline ends it, only the limit does.
 * `over` is told how it ended, before anybody else is, and never before this has returned.
 */
export function runDetached(
  { call, next, channel, limit, limitMs, clock }: DetachedParts,
  over: (outcome: Outcome) => void,
): Promise<Outcome> {
  const { record } = call
  const deadline = { at: clock.now() + limitMs, reserveMs: call.deadline?.reserveMs, askedFor: false }
  const detached = derive(call, { signal: never, channel, deadline })
  const tooLong = () =>
    gatewayError(
      'deadline_exceeded',
      `no answer within ${formatDuration(limitMs)}, the limit of calls with a key`,
      {
        sent: record.sent,
      },
    )
  return new Promise<Outcome>((resolve) => resolve(limit.run(detached, next, limitMs, tooLong))).then(
    (outcome) => {
      over(outcome)
      return outcome
    },
    (defect: unknown) => {
      over({ kind: 'failed', error: gatewayError('internal', 'internal error', { sent: record.sent }) })
      throw defect
    },
  )
}

/** Waits for the outcome of a call that another caller has started with the same key. */
export function joined(call: Call, { outcome }: Run): Promise<Outcome> {
  replayed.note(call.record, 'joined')
  call.record.hasWaitedElsewhere = true
  return whileThere(
    call,
    outcome.then((ended) => {
      // One that is still bytes is edited without being read.
      const isText = ended.kind === 'answered' && !LargeMessage.is(ended.result)
      const length = isText ? ended.result.text.length : 0
      return inTurn(length, call, () => shared(ended, call))
    }),
  )
}

/**
 * The outcome, unless the call is given up first: then why it was. Also a call that still waits for its turn goes on
 * without whoever has left, and may run: they have to be told so.
 */
export function whileThere({ signal }: Call, outcome: Promise<Outcome>, left?: () => void): Promise<Outcome> {
  return new Promise((resolve, reject) => {
    const leave = () => {
      left?.()
      resolve({ kind: 'failed', error: { ...(signal.reason as GatewayError), sent: true } })
    }
    if (signal.aborted) leave()
    else signal.addEventListener('abort', leave)
    const stay = () => signal.removeEventListener('abort', leave)
    outcome.then(resolve, reject).then(stay, stay)
  })
}
