import type { KeyObject } from 'node:crypto'
import { constants, copyFile, type FileHandle, open, rename } from 'node:fs/promises'
import { nameAside } from '../../units/name-aside.ts'
import { chainHash, formatLine, type Header, ROOT } from './chain.ts'
import { readHead, writeHead } from './head.ts'
import { type Chain, recordsIn } from './read-chain.ts'

/** A chain in a single file: the file, its head, and the key of both. */
export interface ChainPlace {
  readonly path: string
  readonly headPath: string
  readonly key: KeyObject
}

/** A chain compared with its head. */
export interface CheckedChain {
  /** Undefined without a file. */
  readonly chain: Chain | undefined
  /** Why the chain cannot be trusted. Undefined: the chain is whole, or there never was a chain. */
  readonly damage: string | undefined
}

/**
 * Reads the records of a chain as `recordsIn`, and compares the chain with its head. A last line without an end is no
 * damage, because the process ended during the write. `isExpected`: a missing chain is damage.
 */
export async function* checkedRecords<Item>(
  { path, headPath, key }: ChainPlace,
  parse: (record: Buffer) => Item | null | undefined,
  isExpected = false,
): AsyncGenerator<readonly Item[], CheckedChain> {
  // Reads the head first: a running gateway writes lines before the head.
  const head = await readHead(headPath, key)
  const chain = yield* recordsIn(path, key, parse)
  const lines = chain?.hashes.length ?? 0
  const damaged = (why: string): CheckedChain => ({ chain, damage: why })
  if (chain === undefined)
    return head !== 'none' || isExpected ? damaged(`${path} is missing`) : { chain, damage: undefined }
  // A new chain has no head yet when its process ends at once.
  if (head === 'none' && (lines > 1 || isExpected)) return damaged(`the head of ${path} is missing`)
  if (head === 'forged') return damaged(`the head of ${path} was made without the key`)
  const { broken } = chain
  if (broken !== undefined) return damaged(`line ${broken.line} of ${path} ${broken.why}`)
  if (typeof head === 'object' && chain.hashes[head.line - 1] !== head.hash)
    return damaged(`${path} is older than its head, or was changed`)
  if (lines === 0) return damaged(`the first line of ${path} is missing`)
  return { chain, damage: undefined }
}

/** Copies a damaged chain to a name of its own. The damaged file stays until `ChainFile.begin` replaces the file. */
export async function keepDamaged(path: string): Promise<void> {
  await copyFile(path, await nameAside(path), constants.COPYFILE_FICLONE)
}

/** The writer of a chain of JSON lines in a single file. Only one process may write to a chain. */
export class ChainFile {
  readonly #place: ChainPlace
  readonly #file: FileHandle
  #hash: string
  #line: number
  #size: number
  #last: Promise<unknown> = Promise.resolve()

  private constructor(
    place: ChainPlace,
    file: FileHandle,
    end: { readonly hash: string; readonly line: number; readonly size: number },
  ) {
    this.#place = place
    this.#file = file
    this.#hash = end.hash
    this.#line = end.line
    this.#size = end.size
  }

  /** Continues a chain without damage. Cuts a last line without an end. */
  static async continue(place: ChainPlace, { hashes, bytes }: Chain): Promise<ChainFile> {
    const file = await open(place.path, 'r+')
    const end = { hash: hashes.at(-1)!, line: hashes.length, size: bytes }
    return closedOnError(file, async () => {
      await file.truncate(bytes)
      const chain = new ChainFile(place, file, end)
      // The process may have ended after writing a line, and before writing the head.
      await chain.#writeHead()
      return chain
    })
  }

  /** Begins a chain with a header and these records. Replaces the earlier file as a whole. */
  static async begin<Entry extends { readonly at: number }>(
    place: ChainPlace,
    records: readonly Entry[] = [],
  ): Promise<ChainFile> {
    const draft = `${place.path}.new`
    const header: Header = { kind: 'header', at: records[0]?.at ?? 0, file: 1, previous: ROOT }
    const file = await open(draft, 'w+', 0o600)
    return closedOnError(file, async () => {
      const chain = new ChainFile(place, file, { hash: ROOT, line: 0, size: 0 })
      await chain.#put([header, ...records])
      await rename(draft, place.path)
      await chain.#writeHead()
      return chain
    })
  }

  /** Bytes of the file. */
  get size(): number {
    return this.#size
  }

  /** Resolves once the records are on disk. Rejects when the records cannot be written, and leaves no part of them. */
  append(records: readonly object[]): Promise<void> {
    const next = this.#last.then(async () => {
      if (records.length === 0) return
      await this.#put(records)
      await this.#writeHead()
    })
    this.#last = next.catch(() => undefined)
    return next
  }

  /** Closes the file after all writes. */
  async close(): Promise<void> {
    await this.#last
    await this.#file.close()
  }

  async #put(records: readonly object[]): Promise<void> {
    let hash = this.#hash
    let text = ''
    for (const record of records) {
      const json = JSON.stringify(record)
      hash = chainHash(this.#place.key, hash, json)
      text += formatLine(hash, json)
    }
    const bytes = Buffer.from(text)
    try {
      for (let from = 0; from < bytes.length;) {
        const at = this.#size + from
        from += (await this.#file.write(bytes, from, bytes.length - from, at)).bytesWritten
      }
      await this.#file.datasync()
    } catch (error) {
      // The rest of a longer line after the next, shorter line would be damage.
      await this.#file.truncate(this.#size).catch(() => undefined)
      throw error
    }
    this.#hash = hash
    this.#line += records.length
    this.#size += bytes.length
  }

  async #writeHead(): Promise<void> {
    const { headPath, key } = this.#place
    await writeHead(headPath, key, { file: 1, oldest: 1, line: this.#line, hash: this.#hash })
  }
}

/** Returns what `made` makes; closes the file when `made` rejects. */
async function closedOnError<Made>(file: FileHandle, made: () => Promise<Made>): Promise<Made> {
  try {
    return await made()
  } catch (error) {
    await file.close()
    throw error
  }
}
