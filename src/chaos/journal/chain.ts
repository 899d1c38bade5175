import { createHmac, type KeyObject } from 'node:crypto'
import { isObject, parseJson } from '../../protocol/jsonrpc.ts'
import type { JournalEntry } from './entry.ts'

/** Hash that the first line of a chain takes for the hash of the line before it. */
export const ROOT = '0'.repeat(64)

/** The first line of every file: where its chain goes on from. */
export interface Header {
  readonly kind: 'header'
  readonly at: number
  /** Number of the file in its journal, from 1: it stays when the file is renamed. */
  readonly file: number
  /** Hash of the last line of the file before. */
  readonly previous: string
}

/** Entries that were not written, because there were too many at a time or the disk refused. */
export interface Gap {
  readonly kind: 'gap'
  readonly at: number
  readonly dropped: number
}

export type Line = JournalEntry | Header | Gap

/** Hash of a line: HMAC-SHA-256 of the hash before it and of its own record, so that nobody without the key can make one. */
export const chainHash = (key: KeyObject, previous: string, record: string): string =>
  createHmac('sha256', key).update(previous).update(record).digest('hex')

/** A record as a line of the file. The hash stands in front, so that the rest is exactly what it covers. */
export const formatLine = (hash: string, record: string): string => `{"hash":"${hash}","record":${record}}\n`

const LINE = /^\{"hash":"([0-9a-f]{64})","record":(.*)\}$/s

/** Content of a file's text up to the first line that is wrong. */
export interface Chain {
  readonly header: Header | undefined
  readonly lines: readonly Line[]
  /** Hash of each line. */
  readonly hashes: readonly string[]
  /** Bytes of these lines. */
  readonly bytes: number
  /** The first line that is wrong, from 1, and why; the last line also is when it has no end. */
  readonly broken: { readonly line: number; readonly why: string; readonly isTorn: boolean } | undefined
}

/**
 * Reads the chain of one file's text, and checks the chain with the key. Without a key, only text that is no line is found.
 * Whether the file goes on from where its header says is for the caller to check, with the file before.
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
    if (isTorn) return broken('is cut off within')
    const [, hash, record] = LINE.exec(raw) ?? []
    const read = record === undefined ? undefined : parseJson(record)
    if (hash === undefined || record === undefined || !isObject(read))
      return broken('is no line of a journal')
    if (header === undefined) {
      if (read.kind !== 'header') return broken('is not the first line of a file: that is missing')
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
