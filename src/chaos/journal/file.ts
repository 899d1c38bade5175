import type { KeyObject } from 'node:crypto'
import { appendFile, rename, stat, truncate } from 'node:fs/promises'
import type { Cancel, Clock, Millis } from '../../mesh/clock.ts'
import { type Chain, chainHash, formatLine, type Line, readChain, ROOT } from './chain.ts'
import type { JournalEntry } from './entry.ts'
import { type Head, headPath, openKey, readHead, readOrNothing, writeHead } from './head.ts'
import type { Sink } from './journal.ts'

/** Most entries that wait to be written; what comes on top is dropped, and the journal says so. */
const MAX_WAITING = 100_000

/** The same while the disk refuses: what it will take again one day is not worth more memory. */
const MAX_WAITING_FAILING = 1_000

/** How long entries wait for others to be written with, in milliseconds. */
const WAIT_MS: Millis = 100

/** How long a disk that refused is left alone, in milliseconds. */
const RETRY_MS: Millis = 1_000

/** Most entries that are written in one go: making their text holds everything else up. */
const BATCH = 500

export interface JournalFileParts {
  readonly path: string
  /** The folder of the key and of the head. */
  readonly keptIn: string
  /** Size past which a new file is begun, in bytes. */
  readonly maxSize: number
  /** Older files that are kept. */
  readonly keep: number
  readonly clock: Clock
  /** Hears when the disk refuses; once until it takes something again. */
  readonly onError: (why: string) => void
  /** Hears of entries that will never be written. */
  readonly onDropped?: (count: number) => void
  /** The file that was in use before: it is closed, and this one waits for it, as it may have the same path. */
  readonly after?: JournalFile | undefined
}

/** Where the chain is, once it was found. */
interface Place {
  readonly key: KeyObject
  /** Size of the file, in bytes. */
  size: number
  /** Where it ends; of a file that has yet to be begun, `line` is 0. */
  head: Head
}

/** An append-only file of chained lines. Writing never holds a call up, and never fails one. */
export class JournalFile implements Sink {
  readonly #parts: JournalFileParts
  readonly #headPath: string
  readonly #waiting: JournalEntry[] = []
  #place: Place | undefined
  #dropped = 0
  #failing = false
  #cancel: Cancel | undefined
  #writing: Promise<void> | undefined
  readonly #before: Promise<void> | undefined

  constructor(parts: JournalFileParts) {
    this.#parts = parts
    this.#headPath = headPath(parts.keptIn, parts.path)
    this.#before = parts.after?.close()
  }

  append(entry: JournalEntry): void {
    if (this.#waiting.length >= (this.#failing ? MAX_WAITING_FAILING : MAX_WAITING)) return this.#drop(1)
    this.#waiting.push(entry)
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

  /** As `flush`; what the disk refuses now is lost. */
  async close(): Promise<void> {
    await this.flush()
    this.#cancel?.()
    this.#cancel = undefined
    this.#drop(this.#waiting.splice(0).length)
  }

  #writeIn(ms: Millis): void {
    if (this.#writing === undefined) this.#cancel ??= this.#parts.clock.after(ms, () => void this.flush())
  }

  #drop(count: number): void {
    this.#dropped += count
    if (count > 0) this.#parts.onDropped?.(count)
  }

  async #drain(): Promise<void> {
    await this.#before
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.slice(0, BATCH)
      try {
        const place = (this.#place ??= await this.#find())
        await this.#write(place, batch)
        this.#waiting.splice(0, batch.length)
        await writeHead(this.#headPath, place.key, place.head)
        this.#failing = false
      } catch (error) {
        if (!this.#failing) this.#parts.onError((error as Error).message)
        this.#failing = true
        const excess = this.#waiting.splice(MAX_WAITING_FAILING)
        this.#drop(excess.length)
        return
      }
    }
  }

  async #write(place: Place, batch: readonly JournalEntry[]): Promise<void> {
    const { path, maxSize, clock } = this.#parts
    if (place.size >= maxSize) await this.#rotate(place)
    const { file, line } = place.head
    const dropped = this.#dropped
    const lines: Line[] = []
    if (line === 0) lines.push({ kind: 'header', at: clock.wall(), file, previous: place.head.hash })
    if (dropped > 0) lines.push({ kind: 'gap', at: clock.wall(), dropped })
    let { hash } = place.head
    let text = ''
    for (const entry of [...lines, ...batch]) {
      const record = JSON.stringify(entry)
      hash = chainHash(place.key, hash, record)
      text += formatLine(hash, record)
    }
    try {
      await appendFile(path, text, { mode: 0o600 })
    } catch (error) {
      if (!(await this.#undo(place))) this.#place = undefined
      throw error
    }
    this.#dropped -= dropped
    place.size += Buffer.byteLength(text)
    place.head = { ...place.head, hash, line: line + lines.length + batch.length }
  }

  /** A full disk takes a part, which goes again. Whether the file is as it was; otherwise it has to be looked at anew. */
  async #undo({ size }: Place): Promise<boolean> {
    const { path } = this.#parts
    const isThere = await stat(path).then(
      (found) => found.size,
      ({ code }: NodeJS.ErrnoException) => (code === 'ENOENT' ? 0 : undefined),
    )
    if (isThere === size) return true
    return truncate(path, size).then(
      () => true,
      () => false,
    )
  }

  /** Where an earlier process stopped. A file that is damaged is put aside, for people to look at. */
  async #find(): Promise<Place> {
    const { path, keptIn } = this.#parts
    const key = await openKey(keptIn)
    const head = await readHead(this.#headPath, key)
    const text = (await readOrNothing(path)) ?? ''
    if (typeof head === 'string') {
      if (text !== '') await this.#putAside(head === 'none' ? 'has no head' : 'has a head that was forged')
      return { key, size: 0, head: { file: 1, oldest: 1, line: 0, hash: ROOT } }
    }
    const next: Head = { ...head, file: head.file + 1, line: 0 }
    // Renamed, and ended before another one was begun: or else it is gone, and verifying will find that.
    if (text === '') return { key, size: 0, head: next }
    const chain = readChain(text, key)
    const whole = chain.lines.length
    const why = damageIn(chain, head)
    if (why !== undefined) {
      await this.#putAside(why)
      return { key, size: 0, head: next }
    }
    if (chain.broken !== undefined) {
      // Cut off while it was written, as by a kill or a full disk: the process that wrote it knew of no more than before.
      await truncate(path, chain.bytes)
      this.#drop(1)
    }
    const { file = head.file } = chain.header ?? {}
    return { key, size: chain.bytes, head: { ...head, file, line: whole, hash: chain.hashes.at(-1) ?? ROOT } }
  }

  async #putAside(why: string): Promise<void> {
    const { path, onError } = this.#parts
    onError(`${path} ${why}; it is kept as ${path}.damaged`)
    await rename(path, `${path}.damaged`)
  }

  async #rotate(place: Place): Promise<void> {
    const { path, keep } = this.#parts
    const file = place.head.file + 1
    const oldest = Math.max(place.head.oldest, file - keep)
    // Before anything is dropped: whatever ends the process meanwhile, the head asks for nothing that is gone by then.
    await writeHead(this.#headPath, place.key, { ...place.head, oldest })
    for (let number = keep - 1; number >= 1; number--) {
      await rename(`${path}.${number}`, `${path}.${number + 1}`).catch(() => undefined)
    }
    await rename(path, `${path}.1`)
    place.size = 0
    place.head = { ...place.head, file, line: 0, oldest }
  }
}

/** What is wrong with the newest file; undefined when it goes on from its head, but for a last line that was cut off. */
function damageIn({ header, hashes, broken }: Chain, head: Head): string | undefined {
  if (broken !== undefined && (!broken.isTorn || header === undefined))
    return `is damaged: line ${broken.line} ${broken.why}`
  if (header?.file === head.file + 1) return undefined
  if (header?.file !== head.file) return `is file ${header?.file} of its journal, and not ${head.file}`
  if (head.line > 0 && hashes[head.line - 1] !== head.hash)
    return `does not hold what its head says: ${hashes.length} lines, expected ${head.line} or more`
  return undefined
}
