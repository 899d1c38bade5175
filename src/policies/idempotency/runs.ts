import { LRUCache } from 'lru-cache'
import { type Call, type Channel, derive, type Outcome, type Service } from '../../mesh/call.ts'
import type { Signal } from '../../mesh/cancel.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import type { DurableRecords } from '../../mesh/policy.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import type { TimeLimit } from '../../mesh/time-limit.ts'
import { LargeMessage } from '../../protocol/large-message.ts'
import { formatDuration } from '../../units/duration.ts'
import { inTurn } from '../state/in-turn.ts'
import {
  type Begun,
  interrupted,
  type StoredOutcome,
  readStored,
  replayed,
  type Share,
  shared,
  type Stored,
} from './stored-outcome.ts'

/** A call started under a key. */
interface Run extends Begun {
  readonly outcome: Promise<Outcome>
}

interface Ended extends Begun {
  /** May lose its answer to make room for later answers. */
  kept: StoredOutcome
  /** When the call is forgotten. */
  readonly expiresAt: Millis
  /** The time from end to expiry, in milliseconds; 0 when an earlier process has set the expiry. */
  readonly ms: Millis
}

interface Retention {
  readonly ms: Millis
  /** Most bytes of answers to keep, over all calls. */
  readonly maxSize: number
}

/** The limit reached: of one tenant, of one client, or of all. */
export type Full = 'tenant' | 'client' | 'all'

interface NoPlace {
  readonly full: Full
  readonly held: number
  /** When a place is free at the earliest, in milliseconds from now. */
  readonly retryAfterMs: Millis
}

/** A client may name many tenants, so it may have this many times the free places: alone, seven eighths of all. */
const CLIENT_TIMES = 7

/** Returns a map with cheap removal of the oldest entry: the iterator of a `Map` also visits removed entries. */
const inOrder = () =>
  new LRUCache<string, Ended>({ maxSize: Number.MAX_SAFE_INTEGER, sizeCalculation: () => 1 })

/**
 * The calls of a server with a key: running calls, and finished calls until their window ends. Neither is dropped for
 * another key, or its call could run again. With `records`, this knowledge outlives the process.
 */
export class Runs {
  readonly #clock: Clock
  readonly #underWay = new Map<string, Run>()
  /**
   * Ended calls by window, because reloads may change windows. Calls with equal windows expire in the order of their
   * ends.
   */
  readonly #over = new Map<Millis, LRUCache<string, Ended>>()
  #overCount = 0
  /** The ended calls with kept answers. */
  readonly #answered = inOrder()
  readonly #tenants = new Map<string, number>()
  readonly #clients = new Map<string, number>()
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
      else {
        this.#count(stored.share, 1)
        this.#add(id, { ...stored, expiresAt: expiresAt + offset, ms: 0 })
      }
    }
  }

  find(id: string): Run | Ended | undefined {
    const running = this.#underWay.get(id)
    if (running !== undefined) return running
    const run = this.#ended(id)
    if (run === undefined || run.expiresAt > this.#clock.now()) return run
    this.#drop(id, run)
    return undefined
  }

  /**
   * Returns why a tenant or client gets no place for another key; undefined when there is a place. A tenant without any
   * key gets a place while any of `maxKeys` is free. A tenant may have as many keys as there are free places: a single
   * tenant stops at half of all, and a second tenant at half of the rest.
   */
  noPlace({ tenant, client }: Share, maxKeys: number): NoPlace | undefined {
    this.#dropExpired()
    const count = this.#underWay.size + this.#overCount
    const free = maxKeys - count
    const ofTenant = this.#tenants.get(tenant) ?? 0
    const ofClient = this.#clients.get(client) ?? 0
    if (free <= 0) return this.#noPlace('all', count)
    if (ofTenant >= free) return this.#noPlace('tenant', ofTenant)
    if (ofClient >= CLIENT_TIMES * free) return this.#noPlace('client', ofClient)
    return undefined
  }

  /**
   * Records for a later process that a call may have run, for `ms` at most. The call must not be sent before the
   * promise has resolved; undefined when there is nothing to wait for.
   */
  announce(id: string, { fingerprint, reader, share }: Begun, ms: Millis): Promise<void> | undefined {
    return this.#records?.put(id, { fingerprint, reader, share, kept: interrupted }, this.#clock.wall() + ms)
  }

  begin(id: string, run: Run): void {
    this.#underWay.set(id, run)
    this.#count(run.share, 1)
  }

  /** Ends a call. If answers exceed their limit, drops the oldest answers, but keeps the record of their calls. */
  finish(id: string, stored: Stored, { ms, maxSize }: Retention): void {
    this.#underWay.delete(id)
    this.#dropExpired()
    const ended = { ...stored, expiresAt: this.#clock.now() + ms, ms }
    this.#add(id, ended)
    this.#record(id, ended)
    while (this.#bytes > maxSize) this.#dropOldestAnswer()
  }

  /** Ends a call that may run again. */
  forget(id: string): void {
    const run = this.#underWay.get(id)
    if (run !== undefined) this.#count(run.share, -1)
    this.#underWay.delete(id)
    this.#records?.delete(id)
  }

  /** Closes the runs: no new caller will find them, and a later process needs no records. */
  close(): void {
    for (const calls of this.#over.values()) for (const id of calls.keys()) this.#records?.delete(id)
    for (const id of this.#underWay.keys()) this.#records?.delete(id)
    this.#records = undefined
  }

  /** Returns how many calls run and are over, the bytes of their answers, and the number of answers dropped early. */
  snapshot() {
    return {
      underWay: this.#underWay.size,
      over: this.#overCount,
      bytes: this.#bytes,
      evicted: this.#evicted,
    }
  }

  #noPlace(full: Full, held: number): NoPlace {
    const now = this.#clock.now()
    let earliest = Infinity
    for (const calls of this.#over.values())
      earliest = Math.min(earliest, oldestOf(calls)?.ended.expiresAt ?? Infinity)
    // A running call may also free its place, at an unknown time, when it ends without having run.
    return { full, held, retryAfterMs: earliest === Infinity ? UNDER_WAY_MS : earliest - now }
  }

  #count({ tenant, client }: Share, by: 1 | -1): void {
    countIn(this.#tenants, tenant, by)
    countIn(this.#clients, client, by)
  }

  #ended(id: string): Ended | undefined {
    for (const calls of this.#over.values()) {
      const ended = calls.peek(id)
      if (ended !== undefined) return ended
    }
    return undefined
  }

  /** Adds an ended call. Its place has been counted since the call began. */
  #add(id: string, ended: Ended): void {
    const former = this.#ended(id)
    if (former !== undefined) this.#remove(id, former)
    let calls = this.#over.get(ended.ms)
    if (calls === undefined) this.#over.set(ended.ms, (calls = inOrder()))
    calls.set(id, ended)
    this.#overCount++
    if (ended.kept.kind !== 'answered') return
    this.#answered.set(id, ended)
    this.#bytes += ended.kept.bytes
  }

  /** Records a call without waiting. If the record is lost, the call is still known to have run. */
  #record(id: string, { fingerprint, reader, share, kept, expiresAt }: Ended): void {
    const expiresAtWall = this.#clock.wall() + expiresAt - this.#clock.now()
    void this.#records?.put(id, { fingerprint, reader, share, kept }, expiresAtWall)
  }

  /** Drops expired calls: most keys are never used again, and would fill all places. */
  #dropExpired(): void {
    const now = this.#clock.now()
    for (const [ms, calls] of this.#over) {
      for (let oldest = oldestOf(calls); oldest !== undefined; oldest = oldestOf(calls)) {
        if (oldest.ended.expiresAt > now) break
        this.#drop(oldest.id, oldest.ended)
      }
      if (calls.size === 0) this.#over.delete(ms)
    }
  }

  #dropOldestAnswer(): void {
    const oldest = oldestOf(this.#answered)
    if (oldest === undefined) return
    const { id, ended } = oldest
    if (ended.expiresAt > this.#clock.now()) this.#evicted++
    this.#dropAnswer(id, ended)
    this.#record(id, ended)
  }

  #dropAnswer(id: string, ended: Ended): void {
    if (ended.kept.kind !== 'answered') return
    const { bytes } = ended.kept
    this.#answered.delete(id)
    this.#bytes -= bytes
    ended.kept = { kind: 'made_room', bytes }
  }

  #drop(id: string, ended: Ended): void {
    this.#remove(id, ended)
    this.#records?.delete(id)
  }

  #remove(id: string, ended: Ended): void {
    this.#over.get(ended.ms)?.delete(id)
    this.#overCount--
    this.#count(ended.share, -1)
    this.#dropAnswer(id, ended)
  }
}

/** When to retry if all keys belong to calls under way, in milliseconds. */
const UNDER_WAY_MS: Millis = 1_000

function countIn(counts: Map<string, number>, name: string, by: 1 | -1): void {
  const count = (counts.get(name) ?? 0) + by
  if (count > 0) counts.set(name, count)
  else counts.delete(name)
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

/** A signal that never aborts: only the time limit ends a detached call. */
const never: Signal = {
  aborted: false,
  reason: undefined,
  addEventListener: () => undefined,
  removeEventListener: () => undefined,
}

/**
 * Runs a call independently of its caller: neither the caller's leaving nor its deadline ends the call, only the limit
 * does. Returns the outcome. Calls `over` with the outcome before the returned promise settles, and never before this
 * function returns.
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
      `no answer within ${formatDuration(limitMs)}, the limit of calls with an idempotency key`,
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

/** Waits for the outcome of a call another caller has started with the same key. */
export function joined(call: Call, { outcome }: Run): Promise<Outcome> {
  replayed.note(call.record, 'joined')
  call.record.hasWaitedElsewhere = true
  return whileThere(
    call,
    outcome.then((ended) => {
      // A result of raw bytes is edited without parsing.
      const isText = ended.kind === 'answered' && !LargeMessage.is(ended.result)
      const length = isText ? ended.result.text.length : 0
      return inTurn(length, call, () => shared(ended, call))
    }),
  )
}

/** Returns the outcome, or a failure if the caller gives up first. The call itself continues, and may run. */
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
