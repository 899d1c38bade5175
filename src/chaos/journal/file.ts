import type { KeyObject } from 'node:crypto'
import { appendFile, rename, stat, truncate } from 'node:fs/promises'
import type { Clock } from '../../mesh/clock.ts'
import { WriteQueue } from '../../mesh/write-queue.ts'
import { nameAside } from '../../units/name-aside.ts'
import { chainHash, formatLine, type Line, ROOT } from './chain.ts'
import type { JournalEntry } from './entry.ts'
import { type Head, headPath, lostAfter, openKey, readHead, writeHead } from './head.ts'
import type { Sink } from './journal.ts'
import { type Chain, type ChainLines, readChain } from './read-chain.ts'

/** Maximum number of entries waiting to be written; further entries are dropped, and the journal says so. */
const MAX_WAITING = 100_000

/** The same limit while the disk rejects writes: entries that may never be written are not worth more memory. */
const MAX_WAITING_FAILING = 1_000

/** Maximum number of entries per write: building their text blocks the event loop. */
const BATCH = 500

export interface JournalFileParts {
  readonly path: string
  readonly keptIn: string
  /** Size from which a new file begins, in bytes. */
  readonly maxSize: number
  /** Number of older files to keep. */
  readonly keep: number
  readonly clock: Clock
  /** Called when the disk rejects writes, and not again before a write has succeeded. */
  readonly onError: (why: string) => void
  /** Called with the number of entries that will never be written. */
  readonly onDropped?: (count: number) => void
  /** The file in use before: it gets closed first, because both may have the same path. */
  readonly after?: JournalFile | undefined
}

/** The end of the chain, once found. */
interface Place {
  readonly key: KeyObject
  /** Size of the file, in bytes. */
  size: number
  /** The end of the file; `line` is 0 before the file has begun. */
  head: Head
}

/** An append-only file of chained lines. Writing never delays or fails a call. */
export class JournalFile implements Sink {
  readonly #parts: JournalFileParts
  readonly #headPath: string
  readonly #queue: WriteQueue<JournalEntry>
  #place: Place | undefined
  /**
   * Number of lost entries that the file does not mention yet. Includes the entries that an earlier process lost, once
   * the head was read.
   */
  #dropped = 0
  #hasReadHead = false
  /** Entries this process has written, since it began or continued its journal. */
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

  /** Resolves when all earlier entries are written, or their writing has failed. */
  flush(): Promise<void> {
    return this.#queue.flush()
  }

  /**
   * Flushes, and closes the file. Entries that the disk rejects now are lost, and the head counts them. Later entries
   * are lost too.
   */
  async close(): Promise<void> {
    await this.#queue.close()
    if (this.#dropped > 0) await this.#noteLoss(0)
  }

  /**
   * Writes into the head how many entries the file lacks at its end. If the process ends before the disk recovers,
   * `verify` reports the lost entries. `waiting`: entries that may yet be written.
   */
  async #noteLoss(waiting: number): Promise<void> {
    // A journal that cannot be read cannot be verified either.
    if (!this.#hasReadHead) return
    try {
      const key = this.#place?.key ?? (await openKey(this.#parts.keptIn))
      // A file not yet begun may be missing.
      const isBegun = this.#place !== undefined && this.#place.head.line > 0
      const found = isBegun ? this.#place!.head : await readHead(this.#headPath, key)
      if (found === 'forged') return
      const head = found === 'none' ? NO_HEAD : found
      // A head without a file is new: the folder of the old head has vanished, with all written entries.
      const lost = this.#dropped + waiting + (head.file === 0 ? this.#written : 0)
      await writeHead(this.#headPath, key, { ...head, lost })
    } catch {
      // The disk of the head rejects writes too; `onError` has reported the journal already.
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
      // The next write reads the file again, and continues the chain or finds damage.
      this.#place = undefined
      throw new Error(`${path} has ${found} bytes, not ${place.size}: another process writes to it`)
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

  /**
   * Cuts off a part written to a full disk. Returns true when the file is as before the write; otherwise the file must
   * be read again.
   */
  async #undo({ size }: Place): Promise<boolean> {
    const { path } = this.#parts
    if ((await sizeOf(path)) === size) return true
    return truncate(path, size).then(
      () => true,
      () => false,
    )
  }

  /**
   * Returns the end of the chain that an earlier process left. Renames a damaged file, so that people can examine it.
   */
  async #find(): Promise<Place> {
    const { path, keptIn } = this.#parts
    const key = await openKey(keptIn)
    const head = await readHead(this.#headPath, key)
    const chain = (await readChain(path, key)) ?? NO_CHAIN
    const isEmpty = chain.bytes + chain.cutBytes === 0 && chain.broken === undefined
    this.#takeOver(typeof head === 'string' ? 0 : lostAfter(head, chain))
    if (typeof head === 'string') {
      if (!isEmpty) await this.#putAside(head === 'none' ? 'has no head' : 'has a forged head')
      this.#beginAgain(chain, head)
      return { key, size: 0, head: { ...NO_HEAD, file: 1 } }
    }
    const next: Head = { ...head, file: head.file + 1, line: 0 }
    // The process ended between renaming the file and beginning a new file; or the file is lost, which `verify` will
    // report.
    if (isEmpty) {
      if (head.file === 0) this.#beginAgain(chain, 'none')
      return { key, size: 0, head: next }
    }
    const why = damageIn(chain, head)
    if (why !== undefined) {
      await this.#putAside(why)
      return { key, size: 0, head: next }
    }
    if (chain.cutBytes > 0) {
      // The last line was cut off while being written, as by a kill or a full disk: its entry is lost.
      await truncate(path, chain.bytes)
      this.#drop(1)
    }
    const { file = head.file } = chain.header ?? {}
    return {
      key,
      size: chain.bytes,
      head: { ...head, file, line: chain.hashes.length, hash: chain.hashes.at(-1) ?? ROOT },
    }
  }

  /** Counts the entries an earlier process lost at the end of the file, and writes a gap line for them. */
  #takeOver(lost: number): void {
    if (this.#hasReadHead) return
    this.#hasReadHead = true
    if (lost === 0) return
    this.#dropped += lost
    // An earlier file of this process has already counted these entries.
    if (this.#parts.after === undefined) this.#parts.onDropped?.(lost)
  }

  /**
   * Counts the entries of a journal that cannot be continued as dropped: otherwise the new journal would look complete.
   */
  #beginAgain({ lines, bytes, cutBytes, broken }: ChainLines, head: 'none' | 'forged'): void {
    const known = lines.filter(({ kind }) => kind !== 'header' && kind !== 'gap').length
    const isUnread = broken !== undefined || bytes + cutBytes > 0 || head === 'forged'
    const count = Math.max(known, this.#written, isUnread ? 1 : 0)
    this.#written = 0
    if (count > 0) this.#drop(count)
  }

  async #putAside(why: string): Promise<void> {
    const { path, onError } = this.#parts
    const aside = await nameAside(path)
    onError(`${path} ${why}; it is kept as ${aside}`)
    await rename(path, aside)
  }

  async #rotate(place: Place): Promise<void> {
    const { path, keep } = this.#parts
    const file = place.head.file + 1
    const oldest = Math.max(place.head.oldest, file - keep)
    // Writes the head before dropping a file: if the process ends in between, the head requires no missing file.
    await writeHead(this.#headPath, place.key, { ...place.head, oldest })
    for (let number = keep - 1; number >= 1; number--) {
      await rename(`${path}.${number}`, `${path}.${number + 1}`).catch(() => undefined)
    }
    await rename(path, `${path}.1`)
    place.size = 0
    place.head = { ...place.head, file, line: 0, oldest }
  }
}

/** Returns the size of a file in bytes, 0 for no file; undefined when the size cannot be read. */
const sizeOf = (path: string): Promise<number | undefined> =>
  stat(path).then(
    ({ size }) => size,
    ({ code }: NodeJS.ErrnoException) => (code === 'ENOENT' ? 0 : undefined),
  )

/** The chain of a file that is missing or empty. */
const NO_CHAIN: ChainLines = {
  header: undefined,
  hashes: [],
  lines: [],
  bytes: 0,
  cutBytes: 0,
  broken: undefined,
}

/** The head of a journal that has no file yet. */
const NO_HEAD: Head = { file: 0, oldest: 1, line: 0, hash: ROOT }

/**
 * Returns the damage of the newest file; undefined when the file agrees with the head. A last line that is cut off is
 * no damage.
 */
function damageIn({ header, hashes, broken }: Chain, head: Head): string | undefined {
  if (broken !== undefined) return `is damaged: line ${broken.line} ${broken.why}`
  if (header === undefined) return 'is damaged: line 1 is cut off in the middle'
  if (header.file === head.file + 1) return undefined
  if (header.file !== head.file) return `is file ${header.file} of its journal, and not ${head.file}`
  if (head.line > 0 && hashes[head.line - 1] !== head.hash)
    return `contradicts its head: ${hashes.length} lines, expected ${head.line} or more`
  return undefined
}
