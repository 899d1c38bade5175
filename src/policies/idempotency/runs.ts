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
interface Ended {
  readonly fingerprint: string
  /** Its answer may have to make room for later ones. */
  kept: StoredOutcome
  /** When it is forgotten. */
  readonly expiresAt: Millis
}

/** How long and how much is remembered. */
interface Retention {
  /** How long of this call, in milliseconds. */
  readonly ms: Millis
  /** How many bytes of answers, of all calls. */
  readonly maxSize: number
}

/** A map from which the oldest goes at little cost: a `Map` walks over all that went before it. */
const inOrder = () =>
  new LRUCache<string, Ended>({ maxSize: Number.MAX_SAFE_INTEGER, sizeCalculation: () => 1 })

/**
 * The calls of one server that have a key: those that run, which are never forgotten, and those that are over,
 * in the order in which they ended. What is known of them outlives the process where there are `records` for it.
 */
export class Runs {
  readonly #clock: Clock
  readonly #underWay = new Map<string, Run>()
  /** Its limits come with each call, as reloads may change them. */
  readonly #over = inOrder()
  /** Those of them whose answers are kept. */
  readonly #answered = inOrder()
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
    while (this.#underWay.size + this.#over.size >= maxKeys && this.#over.size > 0) this.#dropOldest()
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

  /** The call is over. Where answers take more room than they may, the oldest go, and not what is known of their calls. */
  finish(id: string, stored: Stored, { ms, maxSize }: Retention): void {
    this.#underWay.delete(id)
    this.#dropExpired()
    const ended = { ...stored, expiresAt: this.#clock.now() + ms }
    this.#add(id, ended)
    this.#record(id, ended)
    while (this.#bytes > maxSize) this.#dropOldestAnswer()
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
    if (ended.kept.kind !== 'answered') return
    this.#answered.set(id, ended)
    this.#bytes += ended.kept.bytes
  }

  /** Who asks for it is not kept waiting: should it get lost, the call is still known to have run. */
  #record(id: string, { fingerprint, kept, expiresAt }: Ended): void {
    void this.#records?.put(id, { fingerprint, kept }, this.#clock.wall() + expiresAt - this.#clock.now())
  }

  /** Nobody asks for most keys again: those whose time is over would stay until there is no room for others. */
  #dropExpired(): void {
    const now = this.#clock.now()
    for (let oldest = oldestOf(this.#over); oldest !== undefined; oldest = oldestOf(this.#over)) {
      if (oldest.ended.expiresAt > now) return
      this.#drop(oldest.id, oldest.ended)
    }
  }

  #dropOldest(): void {
    const oldest = oldestOf(this.#over)
    if (oldest === undefined) return
    this.#countEvicted(oldest.ended)
    this.#drop(oldest.id, oldest.ended)
  }

  #dropOldestAnswer(): void {
    const oldest = oldestOf(this.#answered)
    if (oldest === undefined) return
    const { id, ended } = oldest
    this.#countEvicted(ended)
    this.#dropAnswer(id, ended)
    this.#record(id, ended)
  }

  #countEvicted({ expiresAt }: Ended): void {
    if (expiresAt > this.#clock.now()) this.#evicted++
  }

  #dropAnswer(id: string, ended: Ended): void {
    if (ended.kept.kind !== 'answered') return
    const { bytes } = ended.kept
    this.#answered.delete(id)
    this.#bytes -= bytes
    ended.kept = { kind: 'made_room', bytes }
  }

  #drop(id: string, ended: Ended): void {
    this.#over.delete(id)
    this.#dropAnswer(id, ended)
    this.#records?.delete(id)
  }
}

function oldestOf(
  calls: LRUCache<string, Ended>,
): { readonly id: string; readonly ended: Ended } | undefined {
  const { value: id } = calls.rkeys().next()
  const ended = id === undefined ? undefined : calls.peek(id)
  return id === undefined || ended === undefined ? undefined : { id, ended }
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
