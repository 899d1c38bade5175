import type { Cancel, Clock, Millis } from './clock.ts'

/** How long entries wait to be written together, in milliseconds. */
const WAIT_MS: Millis = 100

/** Pause after a failed write, in milliseconds. */
const RETRY_MS: Millis = 1_000

export interface WriteQueueParts<Entry> {
  readonly clock: Clock
  /** Most waiting data, in units of `sizeOf`; further entries are dropped. */
  readonly most: number
  /** Like `most`, but while writes fail: entries that may never be written are not worth more memory. */
  readonly mostFailing: number
  /** Returns the size of an entry in units of `most`. Default: 1. */
  readonly sizeOf?: (entry: Entry) => number
  /** Most entries per write: serialising entries blocks everything else. */
  readonly batch: number
  /** Writes all entries or none. */
  readonly write: (entries: readonly Entry[]) => Promise<void>
  /** Runs after each written batch. A failure here does not repeat the batch. */
  readonly written?: () => Promise<void>
  /** Called when a write fails; once until a write succeeds again. */
  readonly onError: (why: string) => void
  /** Called after each failed write with the number of waiting entries. Must not reject. */
  readonly refused?: (waiting: number) => Promise<void>
  /** Called with the number of entries that will never be written. */
  readonly onDropped: (count: number) => void
  /** The first write waits for this promise. */
  readonly after?: Promise<void> | undefined
}

/**
 * Queues entries for the disk without delaying or failing callers: if the disk is too slow, drops and counts entries.
 */
export class WriteQueue<Entry> {
  readonly #parts: WriteQueueParts<Entry>
  readonly #sizeOf: (entry: Entry) => number
  readonly #waiting: Entry[] = []
  #size = 0
  #failing = false
  #closed = false
  #cancel: Cancel | undefined
  #writing: Promise<void> | undefined

  constructor(parts: WriteQueueParts<Entry>) {
    this.#parts = parts
    this.#sizeOf = parts.sizeOf ?? (() => 1)
  }

  /**
   * Queues an entry, or drops it when the queue is full or closed. After `close`, another writer may use the same file.
   */
  add(entry: Entry): void {
    const { most, mostFailing, onDropped } = this.#parts
    const size = this.#sizeOf(entry)
    if (this.#closed || this.#size + size > (this.#failing ? mostFailing : most)) return onDropped(1)
    this.#waiting.push(entry)
    this.#size += size
    this.#writeIn(WAIT_MS)
  }

  /** Resolves when all earlier entries are written, or a write has failed. */
  flush(): Promise<void> {
    this.#cancel?.()
    this.#cancel = undefined
    this.#writing ??= this.#drain().finally(() => {
      this.#writing = undefined
      if (this.#waiting.length > 0) this.#writeIn(RETRY_MS)
    })
    return this.#writing
  }

  /** Flushes for the last time: entries that the disk refuses now are dropped, and so are later entries. */
  async close(): Promise<void> {
    this.#closed = true
    await this.flush()
    this.#cancel?.()
    this.#cancel = undefined
    this.#drop(0)
  }

  #writeIn(ms: Millis): void {
    if (this.#writing === undefined) this.#cancel ??= this.#parts.clock.after(ms, () => void this.flush())
  }

  /** Drops the newest entries until at most `most` is left. */
  #drop(most: number): void {
    const before = this.#waiting.length
    while (this.#size > most) this.#size -= this.#sizeOf(this.#waiting.pop()!)
    const count = before - this.#waiting.length
    if (count > 0) this.#parts.onDropped(count)
  }

  async #drain(): Promise<void> {
    const { after, batch, write, written, mostFailing, onError, refused } = this.#parts
    await after
    while (this.#waiting.length > 0) {
      const entries = this.#waiting.slice(0, batch)
      try {
        await write(entries)
        this.#waiting.splice(0, entries.length)
        for (const entry of entries) this.#size -= this.#sizeOf(entry)
        await written?.()
        this.#failing = false
      } catch (error) {
        if (!this.#failing) onError((error as Error).message)
        this.#failing = true
        this.#drop(mostFailing)
        await refused?.(this.#waiting.length)
        return
      }
    }
  }
}
