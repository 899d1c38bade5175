import { randomInt } from 'node:crypto'
import { chmod } from 'node:fs/promises'
import type { Clock, Millis } from '../mesh/clock.ts'
import type { DurableRecord, DurableRecords, DurableStore, PolicyContext } from '../mesh/policy.ts'
import { ExpiryQueue } from '../mesh/time-limit.ts'
import { createKeyedRandom } from '../mesh/keyed-random.ts'
import { States } from '../mesh/state.ts'
import type { Log } from '../telemetry/log.ts'
import { notePolicies } from '../telemetry/events.ts'
import type { Metrics } from '../telemetry/metrics.ts'
import { makeFolder } from '../units/folder.ts'
import { type Level, LevelProcess } from './records-level.ts'
import { holderOf, noteHolder, recordsFolder } from './state-lock.ts'

/** The policy context of a gateway, with the state of all policies. */
export interface GatewayPolicyContext extends PolicyContext {
  readonly state: States
}

const SEEDS = 2 ** 32

/**
 * Creates the policy context of the process. `seed`: a whole number from 0 to 2^32 − 1, by default a random seed per
 * process. With equal seeds, gateways before the same servers would back off and retry in step. Faults draw by the
 * seed of their plan instead.
 */
export function createPolicyContext(
  clock: Clock,
  log: Log,
  metrics: Metrics,
  durable: DurableStore | undefined,
  seed: number = randomInt(SEEDS),
): GatewayPolicyContext {
  const emit = notePolicies(metrics, log)
  return { clock, random: createKeyedRandom(seed), state: new States(clock), durable, emit }
}

/** The opened store; empty without `stateDir`. `problem`: the reason when the store cannot be opened. */
interface OpenedStore {
  readonly store?: ClosableStore
  readonly problem?: string
}

export interface DurableParts {
  /** `gateway.stateDir`; undefined: no record outlives the process. */
  readonly stateDir: string | undefined
  readonly clock: Clock
  readonly log: Log
  /** Creates the LevelDB of a folder; default: in a child process. */
  readonly level?: (folder: string) => Level
}

export interface ClosableStore extends DurableStore {
  /** Writes pending changes, for 2 seconds at most. Later records are not kept. Idempotent, never rejects. */
  close(): Promise<void>
}

/** Most records, and most bytes of records and keys. Past either limit new records are not kept; none is evicted. */
const MAX_RECORDS = 100_000
const MAX_BYTES = 128 * 1024 ** 2

/** Most changes waiting for the disk, and most bytes of the changes. Past either limit new records are not kept. */
const MAX_UNWRITTEN = 10_000
const MAX_UNWRITTEN_BYTES = 16 * 1024 ** 2

/** Longest time for which a caller waits until its record is written, in milliseconds. */
const PATIENCE_MS: Millis = 1_000

/** Pause after a failed write, in milliseconds. */
const RETRY_MS: Millis = 5_000

/** Timeout of the last write at close, in milliseconds. */
const CLOSE_MS: Millis = 2_000

/** Interval between deletions of expired records that no policy has taken, in milliseconds. */
const SWEEP_MS: Millis = 60_000

/** Least time between warnings about a full store, in milliseconds. */
const WARN_MS: Millis = 60_000

/** Least time between searches of a full store for expired records, in milliseconds. */
const RECLAIM_MS: Millis = 1_000

/** The size and the expiry of a record, for the limits. */
interface Size {
  /** Size of the record and its key. */
  readonly bytes: number
  readonly expiresAt: Millis
}

/** A record of an earlier process. Its text on disk is the wall time of expiry, a space, then the JSON. */
interface Left {
  readonly key: string
  /** Size of the record and its key. */
  readonly bytes: number
  readonly expiresAt: Millis
  readonly json: string
}

/**
 * Opens the store in `{stateDir}/records`, a LevelDB. Only the owner may enter the folder, because records hold answers
 * to agents. A store that cannot be opened does not stop the start: the gateway logs a warning, and no record outlives
 * the process. A damaged store is repaired as far as possible.
 *
 * Rejects when another gateway has the store open, because two gateways would overwrite each other's files in
 * `stateDir`. The operating system holds the lock, and releases the lock when the process ends.
 *
 * A write counts as written once the operating system has the data, before the data is on the disk. Records survive
 * any end of the process, but not a power loss.
 */
export async function openDurable({
  stateDir,
  clock,
  log,
  level: levelIn = (folder) => new LevelProcess(folder),
}: DurableParts): Promise<OpenedStore> {
  if (stateDir === undefined) return {}
  const folder = recordsFolder(stateDir)
  try {
    makeFolder(folder, 0o700)
    await chmod(folder, 0o700)
    const level = await openLevel(levelIn(folder), folder, log)
    const store = new LevelStore(level, clock, log)
    try {
      await store.load()
    } catch (error) {
      await level.close()
      throw error
    }
    await noteHolder(stateDir)
    return { store }
  } catch (error) {
    const cause = causeOf(error)
    if (cause.code === 'LEVEL_LOCKED') {
      const holder = await holderOf(stateDir)
      throw new Error(
        `another gateway uses ${stateDir} (process ${holder}): stop the other gateway, or set another gateway.stateDir`,
      )
    }
    log.warn({ folder, ...cause }, 'cannot open the store: idempotency keys will not outlive this process')
    return { problem: cause.message }
  }
}

async function openLevel(level: Level, folder: string, log: Log): Promise<Level> {
  try {
    await level.open()
  } catch (error) {
    const { code } = causeOf(error)
    if (code !== 'LEVEL_CORRUPTION') throw error
    log.warn({ folder, code }, 'the store is damaged: repairing it, some idempotency keys may be lost')
    await level.repair()
    await level.open()
  }
  return level
}

/** Returns LevelDB's own code and message, free of record content. */
function causeOf(error: unknown): { code: string | undefined; message: string } {
  const { code, message, cause } = error as NodeJS.ErrnoException & { cause?: unknown }
  return cause instanceof Error ? causeOf(cause) : { code, message }
}

class LevelStore implements ClosableStore {
  readonly #level: Level
  readonly #clock: Clock
  readonly #log: Log
  /** Records of an earlier process that no policy has taken yet, by owner. */
  readonly #left = new Map<string, Left[]>()
  /** The sizes of all records; `#fits` enforces the limits. */
  readonly #sizes = new Map<string, Size>()
  #bytes = 0
  /** Wall time before which no record expires. */
  #nextExpiry: Millis = Infinity
  #reclaimedAt: Millis = -Infinity
  #warnedAt: Millis = -Infinity
  /** Changes for the next batch, by key; undefined deletes the record. */
  #changes = new Map<string, string | undefined>()
  #changedBytes = 0
  #waiting: (() => void)[] = []
  readonly #patience: ExpiryQueue
  /** True during a batch. Batches run one at a time to keep their order. */
  #isWriting = false
  /** Resolves when the current run of batches has ended. */
  #written: Promise<void> | undefined
  #failed = false
  #retryAt: Millis = -Infinity
  #closed = false
  #closing: Promise<void> | undefined

  constructor(level: Level, clock: Clock, log: Log) {
    this.#level = level
    this.#clock = clock
    this.#log = log
    this.#patience = new ExpiryQueue(clock, PATIENCE_MS)
  }

  /** Reads all records, and deletes expired and excess records. Rejects when LevelDB fails. */
  async load(): Promise<void> {
    const now = this.#clock.wall()
    const found: Left[] = []
    const useless: string[] = []
    let total = 0
    for await (const entries of this.#level.entries())
      for (const [key, text] of entries) {
        const space = text.indexOf(' ')
        const expiresAt = Number(text.slice(0, space))
        const bytes = Buffer.byteLength(key) + Buffer.byteLength(text)
        const fits = found.length < MAX_RECORDS && total + bytes <= MAX_BYTES
        if (!fits || !(expiresAt > now)) useless.push(key)
        else {
          total += bytes
          found.push({ key, bytes, expiresAt, json: text.slice(space + 1) })
        }
      }
    if (useless.length > 0) await this.#level.batch(useless.map((key) => ({ type: 'del', key })))
    found.sort((a, b) => a.expiresAt - b.expiresAt)
    for (const left of found) {
      this.#note(left.key, left)
      const owner = ownerOf(left.key)
      const others = this.#left.get(owner)
      if (others === undefined) this.#left.set(owner, [left])
      else others.push(left)
    }
    if (found.length > 0)
      this.#log.info({ records: found.length }, 'read the records kept by an earlier process')
    this.#sweep()
  }

  of({ kind, set, server }: Parameters<DurableStore['of']>[0]): DurableRecords {
    const owner = JSON.stringify([kind, set, server])
    return {
      take: () => this.#take(owner),
      put: (id, value, expiresAt) =>
        this.#put(keyOf(owner, id), `${Math.ceil(expiresAt)} ${JSON.stringify(value)}`, expiresAt),
      delete: (id) => this.#delete(keyOf(owner, id)),
    }
  }

  close(): Promise<void> {
    return (this.#closing ??= this.#close())
  }

  async #close(): Promise<void> {
    // Ignores the pause after a failure, because this is the last chance to write.
    this.#retryAt = -Infinity
    this.#write()
    this.#closed = true
    await Promise.race([this.#end(), this.#clock.sleep(CLOSE_MS, new AbortController().signal)])
  }

  async #end(): Promise<void> {
    await this.#written
    // Retries changes of a failed batch.
    await this.#writeAll()
    await this.#level
      .close()
      .catch((error: unknown) => this.#log.warn(causeOf(error), 'cannot close the store'))
  }

  #take(owner: string): DurableRecord[] {
    const left = this.#left.get(owner) ?? []
    this.#left.delete(owner)
    const now = this.#clock.wall()
    return left.flatMap(({ key, expiresAt, json }) => {
      const value = expiresAt > now ? readJson(json) : undefined
      if (value !== undefined) return { id: key.slice(owner.length + 1), value, expiresAt }
      this.#delete(key)
      return []
    })
  }

  #put(key: string, text: string, expiresAt: Millis): Promise<void> {
    const bytes = Buffer.byteLength(key) + Buffer.byteLength(text)
    if (this.#closed || !this.#fits(key, bytes) || !this.#change(key, text, bytes)) return Promise.resolve()
    this.#note(key, { bytes, expiresAt })
    return new Promise((resolve) => {
      const expiry = this.#patience.add(resolve)
      this.#waiting.push(() => {
        this.#patience.remove(expiry)
        resolve()
      })
      this.#write()
    })
  }

  #delete(key: string): void {
    const size = this.#sizes.get(key)
    if (this.#closed || size === undefined) return
    this.#sizes.delete(key)
    this.#bytes -= size.bytes
    this.#change(key, undefined, Buffer.byteLength(key))
    this.#write()
  }

  #note(key: string, size: Size): void {
    this.#bytes += size.bytes - (this.#sizes.get(key)?.bytes ?? 0)
    this.#sizes.set(key, size)
    this.#nextExpiry = Math.min(this.#nextExpiry, size.expiresAt)
  }

  /**
   * Returns true when a record fits into the store, without the old record of its key. Warns about a full store at most
   * once a minute.
   */
  #fits(key: string, bytes: number): boolean {
    if (this.#hasRoom(key, bytes) || (this.#reclaim() && this.#hasRoom(key, bytes))) return true
    const now = this.#clock.now()
    if (now < this.#warnedAt + WARN_MS) return false
    this.#warnedAt = now
    const full = { records: this.#sizes.size, bytes: this.#bytes }
    this.#log.warn(full, 'the store is full: for now, new keys do not outlive this process')
    return false
  }

  #hasRoom(key: string, bytes: number): boolean {
    const own = this.#sizes.get(key)
    const count = this.#sizes.size + (own === undefined ? 1 : 0)
    return count <= MAX_RECORDS && this.#bytes + bytes - (own?.bytes ?? 0) <= MAX_BYTES
  }

  /**
   * Deletes expired records. Searches at most once a second, because the search reads all records. Returns false
   * without a search.
   */
  #reclaim(): boolean {
    const now = this.#clock.now()
    const wall = this.#clock.wall()
    if (wall < this.#nextExpiry || now < this.#reclaimedAt + RECLAIM_MS) return false
    this.#reclaimedAt = now
    this.#nextExpiry = Infinity
    for (const [key, { expiresAt }] of this.#sizes) {
      if (expiresAt <= wall) this.#delete(key)
      else this.#nextExpiry = Math.min(this.#nextExpiry, expiresAt)
    }
    return true
  }

  /** Adds a change to the next batch; false when too many changes wait. */
  #change(key: string, text: string | undefined, bytes: number): boolean {
    // Limits only writes: a delete never needs more room than its record.
    const isTooMany = text !== undefined && this.#changes.size >= MAX_UNWRITTEN && !this.#changes.has(key)
    const isTooLarge = text !== undefined && this.#changedBytes + bytes > MAX_UNWRITTEN_BYTES
    if (isTooMany || isTooLarge) return false
    this.#changes.set(key, text)
    this.#changedBytes += bytes
    return true
  }

  /** Starts a batch with the pending changes. If a batch is in progress, the next batch includes the changes. */
  #write(): void {
    if (this.#isWriting) return
    if (this.#closed || this.#clock.now() < this.#retryAt) return this.#release()
    this.#isWriting = true
    this.#written = this.#writeAll()
  }

  async #writeAll(): Promise<void> {
    while (this.#changes.size > 0) {
      const changes = this.#changes
      const waiting = this.#waiting
      this.#changes = new Map()
      this.#changedBytes = 0
      this.#waiting = []
      const written = await this.#batch(changes)
      for (const done of waiting) done()
      if (written) continue
      this.#putBack(changes)
      this.#release()
      break
    }
    this.#isWriting = false
  }

  /** Writes a batch. Resolves to true when it was written. */
  async #batch(changes: ReadonlyMap<string, string | undefined>): Promise<boolean> {
    try {
      if (this.#failed) await this.#reopen()
      await this.#level.batch(
        [...changes].map(([key, value]) =>
          value === undefined ? { type: 'del', key } : { type: 'put', key, value },
        ),
      )
      if (this.#failed) this.#log.info('the store can be written to again')
      this.#failed = false
      return true
    } catch (error) {
      if (!this.#failed)
        this.#log.warn(
          causeOf(error),
          'cannot write to the store: for now, new keys do not outlive this process',
        )
      this.#failed = true
      this.#retryAt = this.#clock.now() + RETRY_MS
      return false
    }
  }

  /**
   * Reopens LevelDB after a failed write, so that LevelDB starts a new log file. After a crash, LevelDB would lose all
   * appends to a truncated log file.
   */
  async #reopen(): Promise<void> {
    await this.#level.close()
    await this.#level.open()
  }

  /** Puts changes of a failed batch into the next batch; a newer change of the same key wins. */
  #putBack(changes: ReadonlyMap<string, string | undefined>): void {
    for (const [key, text] of changes) {
      if (this.#changes.has(key)) continue
      const bytes = Buffer.byteLength(key) + (text === undefined ? 0 : Buffer.byteLength(text))
      this.#change(key, text, bytes)
    }
  }

  #release(): void {
    const waiting = this.#waiting
    this.#waiting = []
    for (const done of waiting) done()
  }

  /** Deletes expired records that no policy has taken, such as records of removed servers. */
  #sweep(): void {
    const now = this.#clock.wall()
    for (const [owner, left] of this.#left) {
      const stays = left.filter(({ expiresAt }) => expiresAt > now)
      for (const { key, expiresAt } of left) if (expiresAt <= now) this.#delete(key)
      if (stays.length > 0) this.#left.set(owner, stays)
      else this.#left.delete(owner)
    }
    if (this.#left.size > 0 && !this.#closed) this.#clock.after(SWEEP_MS, () => this.#sweep())
  }
}

/**
 * Returns the store's key of an owner and id. Different pairs have different keys, because owners are JSON texts
 * without line feeds.
 */
const keyOf = (owner: string, id: string) => `${owner}\n${id}`
const ownerOf = (key: string) => key.slice(0, key.indexOf('\n'))

function readJson(text: string): unknown {
  try {
    return JSON.parse(text) as unknown
  } catch {
    return undefined
  }
}
