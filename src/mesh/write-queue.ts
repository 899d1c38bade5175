import type { Cancel, Clock, Millis } from './clock.ts'

/** How long entries wait for others to be written with, in milliseconds. */
const WAIT_MS: Millis = 100

/** How long a disk that refused is left alone, in milliseconds. */
const RETRY_MS: Millis = 1_000

export interface WriteQueueParts<Entry> {
  readonly clock: Clock
  /** Most that waits to be written, in the unit of `sizeOf`; what comes on top is dropped. */
  readonly most: number
  /** The same while the disk refuses: what it will take again one day is not worth more memory. */
  readonly mostFailing: number
  /** How much an entry takes of that. Default: 1. */
  readonly sizeOf?: (entry: Entry) => number
  /** Most entries that are written in one go: making their text holds everything else up. */
  readonly batch: number
  /** Writes entries, all or none. */
  readonly write: (entries: readonly Entry[]) => Promise<void>
  /** Runs after each batch was written. When it fails, the batch is not written again. */
  readonly written?: () => Promise<void>
  /** Hears when the disk refuses; once until it takes something again. */
  readonly onError: (why: string) => void
  /** Hears at each refusal how many entries wait. Must not reject. */
  readonly refused?: (waiting: number) => Promise<void>
  /** Hears of entries that will never be written. */
  readonly onDropped: (count: number) => void
  /** The first write waits until this promise is settled. */
  readonly after?: Promise<void> | undefined
}

/**
 * A queue of entries to write to disk. The queue holds nobody up and fails nobody: a disk that is too slow loses
 * entries, which are counted.
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

  /** Drops what comes after `close`: somebody else may be writing to the same place by then. */
  add(entry: Entry): void {
    const { most, mostFailing, onDropped } = this.#parts
    const size = this.#sizeOf(entry)
    if (this.#closed || this.#size + size > (this.#failing ? mostFailing : most)) return onDropped(1)
    this.#waiting.push(entry)
    this.#size += size
    this.#writeIn(WAIT_MS)
  }

  /** Resolves when everything is written that came before, or could not be. */
  flush(): Promise<void> {
    this.#cancel?.()
    this.#cancel = undefined
    this.#writing ??= this.#drain().finally(() => {
      this.#writing = undefined
      if (this.#waiting.length > 0) this.#writeIn(RETRY_MS)
    })
    return this.#writing
  }

  /** As `flush`, for the last time: what the disk refuses now is lost, and so is what comes later. */
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

  /** Drops the latest ones, so that no more than `most` is left. */
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
