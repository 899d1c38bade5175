import { appendFile, readFile, rename, stat } from 'node:fs/promises'
import type { Cancel, Clock } from '../../mesh/clock.ts'
import { chainHash, formatLine, ROOT, verifyText, type Line } from './chain.ts'
import type { Entry } from './entry.ts'
import type { Sink } from './journal.ts'

/** Most entries that wait to be written; what comes on top is dropped, and the journal says so. */
const MAX_WAITING = 100_000

/** How long entries wait for others to be written with, in milliseconds. */
const WAIT_MS = 100

/** Most entries that are written in one go: making their text holds everything else up. */
const BATCH = 500

export interface JournalFileParts {
  readonly path: string
  /** Size past which a new file is begun, in bytes. */
  readonly maxSize: number
  /** Older files that are kept. */
  readonly keep: number
  readonly clock: Clock
  /** Hears when the disk refuses; once until it takes something again. */
  readonly onError: (why: string) => void
  /** The file that was in use before: it is closed, and this one waits for it, as it may have the same path. */
  readonly after?: JournalFile | undefined
}

/** An append-only file of hash-chained lines. Writing never holds a call up, and never fails one. */
export class JournalFile implements Sink {
  readonly #parts: JournalFileParts
  readonly #waiting: Entry[] = []
  #hash = ROOT
  /** Size of the file; undefined until it has been looked at. */
  #size: number | undefined
  #dropped = 0
  #failing = false
  #cancel: Cancel | undefined
  #writing: Promise<void> | undefined
  readonly #before: Promise<void> | undefined

  constructor(parts: JournalFileParts) {
    this.#parts = parts
    this.#before = parts.after?.close()
  }

  append(entry: Entry): void {
    if (this.#waiting.length >= MAX_WAITING) {
      this.#dropped++
      return
    }
    this.#waiting.push(entry)
    if (this.#writing !== undefined) return
    this.#cancel ??= this.#parts.clock.after(WAIT_MS, () => void this.flush())
  }

  /** Resolves when everything is written that came before, or could not be. */
  flush(): Promise<void> {
    this.#cancel?.()
    this.#cancel = undefined
    this.#writing ??= this.#drain().finally(() => (this.#writing = undefined))
    return this.#writing
  }

  close(): Promise<void> {
    return this.flush()
  }

  async #drain(): Promise<void> {
    await this.#before
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.splice(0, BATCH)
      const dropped = this.#dropped
      try {
        await this.#write(batch, dropped)
        this.#dropped -= dropped
        this.#failing = false
      } catch (error) {
        this.#dropped += batch.length
        // Whether part of it was written is not known: look again.
        this.#size = undefined
        if (!this.#failing) this.#parts.onError((error as Error).message)
        this.#failing = true
      }
    }
  }

  async #write(batch: readonly Entry[], dropped: number): Promise<void> {
    const { path, maxSize, clock } = this.#parts
    this.#size ??= await this.#open()
    if (this.#size >= maxSize) await this.#rotate()
    const lines: Line[] = []
    if (this.#size === 0) lines.push({ kind: 'header', at: clock.wall(), previous: this.#hash })
    if (dropped > 0) lines.push({ kind: 'gap', at: clock.wall(), dropped })
    let hash = this.#hash
    let text = ''
    for (const line of [...lines, ...batch]) {
      const record = JSON.stringify(line)
      hash = chainHash(hash, record)
      text += formatLine(hash, record)
    }
    await appendFile(path, text, { mode: 0o600 })
    this.#hash = hash
    this.#size += Buffer.byteLength(text)
  }

  /** Goes on where an earlier process stopped; a file that is damaged is put aside, for people to look at. */
  async #open(): Promise<number> {
    const { path } = this.#parts
    const text = await readFile(path, 'utf8').catch(() => '')
    if (text === '') return 0
    const verified = verifyText(text)
    if (verified.ok) {
      this.#hash = verified.last
      return (await stat(path)).size
    }
    this.#parts.onError(`line ${verified.line} of ${path} ${verified.why}; it is kept as ${path}.damaged`)
    await rename(path, `${path}.damaged`)
    return 0
  }

  async #rotate(): Promise<void> {
    const { path, keep } = this.#parts
    for (let number = keep - 1; number >= 1; number--) {
      await rename(`${path}.${number}`, `${path}.${number + 1}`).catch(() => undefined)
    }
    await rename(path, `${path}.1`)
    this.#size = 0
  }
}
