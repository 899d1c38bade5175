import { appendFile, lstat, rename, truncate } from 'node:fs/promises'
import type { Clock } from '../../mesh/clock.ts'
import { WriteQueue } from '../../mesh/write-queue.ts'
import type { RecordingHeader } from './format.ts'

/** Most characters that wait to be written; anything beyond is dropped. */
const MAX_WAITING = 16 * 1024 ** 2

/** The same while the disk refuses writes. */
const MAX_WAITING_FAILING = 1024 ** 2

/** Most lines in a write. */
const BATCH = 1_000

export interface RecordingFileParts {
  readonly path: string
  /** Size after which a new file begins, in bytes. */
  readonly maxSize: number
  /** Number of older files kept. */
  readonly keep: number
  readonly clock: Clock
  /** Returns the first line of a file, without the file's number. */
  readonly header: () => Omit<RecordingHeader, 'part'>
  /** Called when the disk refuses a write; once until a write succeeds again. */
  readonly onError: (why: string) => void
  /** Called for calls that will never be written. */
  readonly onDropped: (count: number) => void
  /** The recording before: it is closed, and this recording waits for the close, since both may have the same path. */
  readonly after?: RecordingFile | undefined
}

/**
 * The files of a recording: FILE and older FILE.1, FILE.2 …. An existing file becomes an older file at the start.
 * Writing never delays or fails a call.
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

  /** `line`: JSON. */
  append(line: string): void {
    this.#queue.add(line)
  }

  /** Resolves when everything before is written or has failed. */
  flush(): Promise<void> {
    return this.#queue.flush()
  }

  /** Flushes for the last time: writes the disk now refuses are lost, and so are later lines. */
  close(): Promise<void> {
    return this.#queue.close()
  }

  async #write(lines: readonly string[]): Promise<void> {
    const { path, maxSize } = this.#parts
    const there = await sizeOf(path)
    // If the file was removed or replaced, the recording continues in a new file, readable only by its owner.
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
      // A full disk accepts a part; remove the part again.
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

/** Undefined for a missing file. Rejects for other kinds: a folder must not be moved, and a pipe may never be read. */
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
