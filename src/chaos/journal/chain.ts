import { createHmac, type KeyObject } from 'node:crypto'
import { isObject, parseJson } from '../../protocol/jsonrpc.ts'
import type { JournalEntry } from './entry.ts'

/** Hash in place of a previous line's hash, for the first line of a chain. */
export const ROOT = '0'.repeat(64)

/** The first line of each file: the point from which its chain continues. */
export interface Header {
  readonly kind: 'header'
  readonly at: number
  /** Number of the file in its journal, from 1; a renamed file keeps its number. */
  readonly file: number
  /** Hash of the last line of the previous file. */
  readonly previous: string
}

/** Records how many entries were not written, because too many entries waited or the disk rejected writes. */
export interface Gap {
  readonly kind: 'gap'
  readonly at: number
  readonly dropped: number
}

export type Line = JournalEntry | Header | Gap

/**
 * Returns the hash of a line: HMAC-SHA-256 of the previous hash and the line's record. Nobody can make a hash without
 * the key.
 */
export const chainHash = (key: KeyObject, previous: string, record: string): string =>
  createHmac('sha256', key).update(previous).update(record).digest('hex')

/** Returns a record as a line of the file. The hash is first, so the rest is exactly the hashed text. */
export const formatLine = (hash: string, record: string): string => `{"hash":"${hash}","record":${record}}\n`

const LINE = /^\{"hash":"([0-9a-f]{64})","record":(.*)\}$/s

/** Content of a file's text up to the first wrong line. */
export interface Chain {
  readonly header: Header | undefined
  readonly lines: readonly Line[]
  /** Hash of each line. */
  readonly hashes: readonly string[]
  /** Size of these lines in bytes. */
  readonly bytes: number
  /** The first wrong line, from 1, and why. A last line without a line break is wrong too. */
  readonly broken: { readonly line: number; readonly why: string; readonly isTorn: boolean } | undefined
}

/**
 * Reads the chain of a file's text, and checks the chain with the key. Without a key, finds only text that is no line
 * of a journal. The caller has to compare the header with the end of the previous file.
 */
export function readChain(text: string, key: KeyObject | undefined): Chain {
  const lines: Line[] = []
  const hashes: string[] = []
  let header: Header | undefined
  let bytes = 0
  let last = ROOT
  for (let at = 0; at < text.length;) {
    const end = text.indexOf('\n', at)
    const isTorn = end === -1
    const raw = text.slice(at, isTorn ? undefined : end)
    const broken = (why: string): Chain => {
      return { header, lines, hashes, bytes, broken: { line: lines.length + 1, why, isTorn } }
    }
    if (isTorn) return broken('is cut off in the middle')
    const [, hash, record] = LINE.exec(raw) ?? []
    const read = record === undefined ? undefined : parseJson(record)
    if (hash === undefined || record === undefined || !isObject(read))
      return broken('is no line of a journal')
    if (header === undefined) {
      if (read.kind !== 'header') return broken('is not the first line of a file: the first line is missing')
      header = read as unknown as Header
      last = String(header.previous)
    }
    if (key !== undefined && chainHash(key, last, record) !== hash)
      return broken('was changed, or made without the key, or a line before it is missing')
    last = hash
    lines.push(read as unknown as Line)
    hashes.push(hash)
    bytes += Buffer.byteLength(raw) + 1
    at = end + 1
  }
  return { header, lines, hashes, bytes, broken: undefined }
}
