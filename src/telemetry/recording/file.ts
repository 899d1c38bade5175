import { appendFile, lstat, rename, truncate } from 'node:fs/promises'
import type { Clock } from '../../mesh/clock.ts'
import { WriteQueue } from '../../mesh/write-queue.ts'
import type { RecordingHeader } from './format.ts'

/** Most characters in the write queue; further lines are dropped. */
const MAX_WAITING = 16 * 1024 ** 2

/** Most characters in the write queue while the disk refuses writes. */
const MAX_WAITING_FAILING = 1024 ** 2

/** Most lines in a write. */
const BATCH = 1_000

export interface RecordingFileParts {
  readonly path: string
  /** Size after which a new file begins, in bytes. */
  readonly maxSize: number
  /** Number of older files to keep. */
  readonly keep: number
  readonly clock: Clock
  /** Returns the first line of a file, without the file's number. */
  readonly header: () => Omit<RecordingHeader, 'part'>
  /** Called with the reason when the disk refuses a write; not called again until a write has succeeded. */
  readonly onError: (why: string) => void
  /** Called with the number of calls that will never be written. */
  readonly onDropped: (count: number) => void
  /**
   * The previous recording. This recording closes it and waits for the end of its writes, because both may have the
   * same path.
   */
  readonly after?: RecordingFile | undefined
}

/**
 * The files of a recording: FILE, and older files FILE.1, FILE.2 …. At the start, renames an existing FILE to FILE.1.
 * Writes in the background, so a slow or failing disk does not affect calls.
 */
export class RecordingFile {
  readonly #parts: RecordingFileParts
  readonly #queue: WriteQueue<string>
  /** Size of the newest file, in bytes; 0 before the first file. */
  #size = 0
  #part = 0
  #dropped = 0

  constructor(parts: RecordingFileParts) {
    this.#parts = parts
    this.#queue = new WriteQueue({
      clock: parts.clock,
      most: MAX_WAITING,
      mostFailing: MAX_WAITING_FAILING,
      sizeOf: (line) => line.length,
      batch: BATCH,
      write: (lines) => this.#write(lines),
      onError: parts.onError,
      onDropped: (count) => {
        this.#dropped += count
        parts.onDropped(count)
      },
      after: parts.after?.close(),
    })
  }

  /** Queues a line of JSON for writing. */
  append(line: string): void {
    this.#queue.add(line)
  }

  /** Resolves when all lines queued before are written or have failed. */
  flush(): Promise<void> {
    return this.#queue.flush()
  }

  /** Writes the queued lines for the last time. Drops lines that the disk refuses now, and all later lines. */
  close(): Promise<void> {
    return this.#queue.close()
  }

  async #write(lines: readonly string[]): Promise<void> {
    const { path, maxSize } = this.#parts
    const there = await sizeOf(path)
    // Continues in a new file if another process has removed or replaced the file. Only the owner can read the new
    // file.
    const isBegun = there !== undefined && there === this.#size && there > 0 && there < maxSize
    if (!isBegun && there !== undefined) await this.#rotate()
    const dropped = this.#dropped
    const first = isBegun ? [] : [JSON.stringify({ ...this.#parts.header(), part: this.#part + 1 })]
    const gap = dropped > 0 ? [JSON.stringify({ lost: dropped })] : []
    const text = [...first, ...gap, ...lines].map((line) => `${line}\n`).join('')
    const before = isBegun ? this.#size : 0
    try {
      await appendFile(path, text, { mode: 0o600 })
    } catch (error) {
      // Removes the part of the text that a full disk has accepted.
      await truncate(path, before).catch(() => undefined)
      throw error
    }
    if (!isBegun) this.#part++
    this.#dropped -= dropped
    this.#size = before + Buffer.byteLength(text)
  }

  async #rotate(): Promise<void> {
    const { path, keep } = this.#parts
    for (let number = keep - 1; number >= 1; number--)
      await rename(`${path}.${number}`, `${path}.${number + 1}`).catch(() => undefined)
    await rename(path, `${path}.1`)
  }
}

/**
 * Resolves to the size of a file; undefined for a missing file. Rejects when the path is no regular file: a folder must
 * not be renamed, and a write to a pipe may block.
 */
async function sizeOf(path: string): Promise<number | undefined> {
  try {
    const found = await lstat(path)
    if (found.isFile()) return found.size
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
  throw new Error(`${path} is no regular file`)
}
