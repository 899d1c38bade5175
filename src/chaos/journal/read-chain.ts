import type { KeyObject } from 'node:crypto'
import { type FileHandle, open, stat } from 'node:fs/promises'
import { isObject, parseJson } from '../../protocol/jsonrpc.ts'
import { chainHash, type Header, type Line } from './chain.ts'

/** Bytes read at a time: between two reads other work goes on. */
const CHUNK = 128 * 1024

/** Longest line of a chain, in bytes. */
const MAX_LINE = 16 * 1024 ** 2

/** A chain as far as its lines are right. */
export interface Chain {
  /** The first line; undefined without a right first line. */
  readonly header: Header | undefined
  /** Hash of each line, the header included; line n is at n − 1. */
  readonly hashes: readonly string[]
  /** Bytes of these lines. */
  readonly bytes: number
  /** Bytes of a last line without an end; 0 for none. */
  readonly cutBytes: number
  /** The first wrong line, from 1, and why; undefined for a whole chain. */
  readonly broken: { readonly line: number; readonly why: string } | undefined
}

/**
 * Reads a chain piece by piece, and checks each line with the key. Without a key, finds only text that is no line of a
 * journal. Yields the records after the header, several at a time; the bytes for `parse` are valid during the call
 * only. `parse` returns undefined for a wrong record, and null for a right record to leave out. Returns the chain,
 * undefined without a file. The caller has to compare the header with the end of the previous file. Rejects when the
 * file cannot be read or is no regular file.
 */
export async function* recordsIn<Item>(
  path: string,
  key: KeyObject | undefined,
  parse: (record: Buffer) => Item | null | undefined,
): AsyncGenerator<readonly Item[], Chain | undefined> {
  const file = await openFile(path)
  if (file === undefined) return undefined
  let header: Header | undefined
  const hashes: string[] = []
  let bytes = 0
  /** Checks a line, and adds its item to `items`. Returns why the line is wrong; undefined for a right line. */
  const check = (line: Buffer, items: Item[]): string | undefined => {
    const hash = hashIn(line)
    if (hash === undefined) return NO_LINE
    const record = line.subarray(RECORD_AT, -1)
    if (header === undefined) {
      const read = parseRecord(record)
      if (read === undefined) return NO_LINE
      if (read.kind !== 'header') return 'is not the first line of a file: the first line is missing'
      if (key !== undefined && chainHash(key, String(read.previous), record) !== hash) return CHANGED
      header = read as unknown as Header
    } else {
      if (key !== undefined && chainHash(key, hashes.at(-1)!, record) !== hash) return CHANGED
      const item = parse(record)
      if (item === undefined) return NO_LINE
      if (item !== null) items.push(item)
    }
    hashes.push(hash)
    return undefined
  }
  try {
    let buffer = Buffer.allocUnsafe(CHUNK)
    let filled = 0
    for (;;) {
      const { bytesRead } = await file.read(buffer, filled, buffer.length - filled)
      if (bytesRead === 0) return { header, hashes, bytes, cutBytes: filled, broken: undefined }
      const text = buffer.subarray(0, filled + bytesRead)
      const items: Item[] = []
      let from = 0
      let why: string | undefined
      for (let end = text.indexOf(LINE_BREAK, filled); end !== -1; end = text.indexOf(LINE_BREAK, from)) {
        why = check(text.subarray(from, end), items)
        if (why !== undefined) break
        bytes += end + 1 - from
        from = end + 1
      }
      filled = text.length - from
      if (filled > MAX_LINE) why ??= `is longer than ${MAX_LINE} bytes`
      if (items.length > 0) yield items
      if (why !== undefined)
        return { header, hashes, bytes, cutBytes: 0, broken: { line: hashes.length + 1, why } }
      const next = filled < buffer.length ? buffer : Buffer.allocUnsafe(buffer.length * 2)
      text.copy(next, 0, from)
      buffer = next
    }
  } finally {
    await file.close()
  }
}

/** Calls `onItem` for each item of a reader. Resolves to the result of the reader. */
export async function drained<Item, Result>(
  reading: AsyncGenerator<readonly Item[], Result>,
  onItem: (item: Item) => void = () => undefined,
): Promise<Result> {
  for (;;) {
    const { done, value } = await reading.next()
    if (done === true) return value
    for (const item of value) onItem(item)
  }
}

/** A chain with its lines, the header included. */
export interface ChainLines extends Chain {
  readonly lines: readonly Line[]
}

/** Reads a chain as `recordsIn`. */
export async function readChain(path: string, key: KeyObject | undefined): Promise<ChainLines | undefined> {
  const lines: Line[] = []
  const chain = await drained(recordsIn(path, key, parseRecord), (record) =>
    lines.push(record as unknown as Line),
  )
  if (chain?.header !== undefined) lines.unshift(chain.header)
  return chain && { ...chain, lines }
}

/** Returns the object of a record; undefined for other text. */
export function parseRecord(record: Buffer): Record<string, unknown> | undefined {
  const read = parseJson(record.toString())
  return isObject(read) ? read : undefined
}

const NO_LINE = 'is no line of a journal'
const CHANGED = 'was changed, or made without the key, or a line before it is missing'

const LINE_BREAK = 10
const END = '}'.charCodeAt(0)

/** The begin of each line, with its hash; then the record follows, and `}`. */
const BEGIN = /^\{"hash":"([0-9a-f]{64})","record":$/
const RECORD_AT = '{"hash":"","record":'.length + 64

/** Returns the hash that a line names; undefined for text that is no line. */
const hashIn = (line: Buffer): string | undefined =>
  line.at(-1) === END ? BEGIN.exec(line.toString('latin1', 0, RECORD_AT))?.[1] : undefined

/** Opens a file; undefined without a file. Refuses pipes and devices: a pipe would wait for a writer. */
async function openFile(path: string): Promise<FileHandle | undefined> {
  try {
    if (!(await stat(path)).isFile()) throw new Error(`${path} is no regular file`)
    return await open(path, 'r')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
}
