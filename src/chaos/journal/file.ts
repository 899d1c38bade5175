import type { KeyObject } from 'node:crypto'
import { appendFile, rename, stat, truncate } from 'node:fs/promises'
import type { Clock } from '../../mesh/clock.ts'
import { WriteQueue } from '../../mesh/write-queue.ts'
import { type Chain, chainHash, formatLine, type Line, readChain, ROOT } from './chain.ts'
import type { JournalEntry } from './entry.ts'
import { type Head, headPath, lostAfter, openKey, readHead, readOrNothing, writeHead } from './head.ts'
import type { Sink } from './journal.ts'

/** Most entries that wait to be written; what comes on top is dropped, and the journal says so. */
const MAX_WAITING = 100_000

/** The same while the disk refuses: what it will take again one day is not worth more memory. */
const MAX_WAITING_FAILING = 1_000

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
  readonly #queue: WriteQueue<JournalEntry>
  #place: Place | undefined
  /** Entries that are lost and that the file does not tell of: those of the process before too, once its head was read. */
  #dropped = 0
  #hasReadHead = false
  /** Entries that this process has written, since its journal was begun or gone on with. */
  #written = 0

  constructor(parts: JournalFileParts) {
    this.#parts = parts
    this.#headPath = headPath(parts.keptIn, parts.path)
    this.#queue = new WriteQueue({
      clock: parts.clock,
      most: MAX_WAITING,
      mostFailing: MAX_WAITING_FAILING,
      batch: BATCH,
      write: async (batch) => this.#write((this.#place ??= await this.#find()), batch),
      written: async () => {
        if (this.#place !== undefined) await writeHead(this.#headPath, this.#place.key, this.#place.head)
      },
      onError: parts.onError,
      refused: (waiting) => this.#noteLoss(waiting),
      onDropped: (count) => this.#drop(count),
      after: parts.after?.close(),
    })
  }

  append(entry: JournalEntry): void {
    this.#queue.add(entry)
  }

  /** Resolves when everything is written that came before, or could not be. */
  flush(): Promise<void> {
    return this.#queue.flush()
  }

  /** As `flush`, for the last time: what the disk refuses now is lost, as the head says, and so is what comes later. */
  async close(): Promise<void> {
    await this.#queue.close()
    if (this.#dropped > 0) await this.#noteLoss(0)
  }

  /**
   * Writes into the head how many entries the file lacks at its end: whatever ends the process before the disk takes
   * something again, `verify` does not call the journal whole. `waiting`: entries that may yet be written.
   */
  async #noteLoss(waiting: number): Promise<void> {
    // A journal that cannot be read cannot be verified either.
    if (!this.#hasReadHead) return
    try {
      const key = this.#place?.key ?? (await openKey(this.#parts.keptIn))
      // A file that has yet to be begun is not there for certain.
      const isBegun = this.#place !== undefined && this.#place.head.line > 0
      const found = isBegun ? this.#place!.head : await readHead(this.#headPath, key)
      if (found === 'forged') return
      const head = found === 'none' ? NO_HEAD : found
      // A head that knows of no file is a new one: the folder of the one before has vanished, with all that was written.
      const lost = this.#dropped + waiting + (head.file === 0 ? this.#written : 0)
      await writeHead(this.#headPath, key, { ...head, lost })
    } catch {
      // The disk of the head refuses as well, which `onError` has told of the journal.
    }
  }

  #drop(count: number): void {
    this.#dropped += count
    this.#parts.onDropped?.(count)
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
    const found = await sizeOf(path)
    if (found !== undefined && found !== place.size) {
      // The chain goes on from wherever it ends now, or it is found damaged.
      this.#place = undefined
      throw new Error(`${path} has ${found} bytes and was left with ${place.size}: who else writes to it?`)
    }
    try {
      await appendFile(path, text, { mode: 0o600 })
    } catch (error) {
      if (!(await this.#undo(place))) this.#place = undefined
      throw error
    }
    this.#dropped -= dropped
    this.#written += batch.length
    place.size += Buffer.byteLength(text)
    const { oldest } = place.head
    place.head = { file, oldest, hash, line: line + lines.length + batch.length }
  }

  /** A full disk takes a part, which goes again. Whether the file is as it was; otherwise it has to be looked at anew. */
  async #undo({ size }: Place): Promise<boolean> {
    const { path } = this.#parts
    if ((await sizeOf(path)) === size) return true
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
    const chain = readChain(text, key)
    this.#takeOver(typeof head === 'string' ? 0 : lostAfter(head, chain))
    if (typeof head === 'string') {
      if (text !== '') await this.#putAside(head === 'none' ? 'has no head' : 'has a head that was forged')
      this.#beginAgain(chain, head)
      return { key, size: 0, head: { ...NO_HEAD, file: 1 } }
    }
    const next: Head = { ...head, file: head.file + 1, line: 0 }
    // Renamed, and ended before another one was begun: or else it is gone, and verifying will find that.
    if (text === '') {
      if (head.file === 0) this.#beginAgain(chain, 'none')
      return { key, size: 0, head: next }
    }
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

  /** Counts the entries that an earlier process lost at the end of the file, and writes a gap line for them. */
  #takeOver(lost: number): void {
    if (this.#hasReadHead) return
    this.#hasReadHead = true
    if (lost === 0) return
    this.#dropped += lost
    // A file of this process has counted them itself.
    if (this.#parts.after === undefined) this.#parts.onDropped?.(lost)
  }

  /** Counts the entries of a journal that cannot be gone on with: without them a new one would look whole. */
  #beginAgain({ lines, bytes, broken }: Chain, head: 'none' | 'forged'): void {
    const known = lines.filter(({ kind }) => kind !== 'header' && kind !== 'gap').length
    const isUnread = broken !== undefined || bytes > 0 || head === 'forged'
    const count = Math.max(known, this.#written, isUnread ? 1 : 0)
    this.#written = 0
    if (count > 0) this.#drop(count)
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

/** Bytes of a file, 0 of none; undefined when that cannot be found out. */
const sizeOf = (path: string): Promise<number | undefined> =>
  stat(path).then(
    ({ size }) => size,
    ({ code }: NodeJS.ErrnoException) => (code === 'ENOENT' ? 0 : undefined),
  )

/** The head of a journal that has no file yet. */
const NO_HEAD: Head = { file: 0, oldest: 1, line: 0, hash: ROOT }

/** Returns the damage of the newest file; undefined when it goes on from its head, but for a last line that was cut off. */
function damageIn({ header, hashes, broken }: Chain, head: Head): string | undefined {
  if (broken !== undefined && (!broken.isTorn || header === undefined))
    return `is damaged: line ${broken.line} ${broken.why}`
  if (header?.file === head.file + 1) return undefined
  if (header?.file !== head.file) return `is file ${header?.file} of its journal, and not ${head.file}`
  if (head.line > 0 && hashes[head.line - 1] !== head.hash)
    return `does not hold what its head says: ${hashes.length} lines, expected ${head.line} or more`
  return undefined
}
