import { createHmac, type KeyObject } from 'node:crypto'
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
export const chainHash = (key: KeyObject, previous: string, record: string | Buffer): string =>
  createHmac('sha256', key).update(previous).update(record).digest('hex')

/** Returns a record as a line of the file. The hash is first, so the rest is exactly the hashed text. */
export const formatLine = (hash: string, record: string): string => `{"hash":"${hash}","record":${record}}\n`
