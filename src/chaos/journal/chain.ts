import { createHash } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { isObject, parseJson } from '../../protocol/jsonrpc.ts'
import type { Entry } from './entry.ts'

/** What the first line of a chain takes for the hash of the line before it. */
export const ROOT = '0'.repeat(64)

/** The first line of every file: where its chain goes on from. */
export interface Header {
  readonly kind: 'header'
  readonly at: number
  /** Hash of the last line of the file before. */
  readonly previous: string
}

/** Entries that were not written, because there were too many at a time or the disk refused. */
export interface Gap {
  readonly kind: 'gap'
  readonly at: number
  readonly dropped: number
}

export type Line = Entry | Header | Gap

/** Hash of a line: SHA-256 of the hash before it and of its own record. */
export const chainHash = (previous: string, record: string): string =>
  createHash('sha256').update(previous).update(record).digest('hex')

/** A record as a line of the file. The hash stands in front, so that the rest is exactly what it covers. */
export const formatLine = (hash: string, record: string): string => `{"hash":"${hash}","record":${record}}\n`

const LINE = /^\{"hash":"([0-9a-f]{64})","record":(.*)\}$/s

export type Verified =
  | { readonly ok: true; readonly lines: readonly Line[]; readonly previous: string; readonly last: string }
  | { readonly ok: false; readonly line: number; readonly why: string }

/**
 * Checks the chain of one file's text. `previous`: the hash that it has to go on from, when that is known; a file by
 * itself is believed where it says that it goes on from.
 */
export function verifyText(text: string, previous?: string): Verified {
  const lines: Line[] = []
  let last = previous
  let first = ROOT
  for (const [index, line] of text.split('\n').entries()) {
    if (line === '') continue
    const broken = (why: string): Verified => ({ ok: false, line: index + 1, why })
    const [, hash, record] = LINE.exec(line) ?? []
    const read = record === undefined ? undefined : parseJson(record)
    if (hash === undefined || record === undefined || !isObject(read))
      return broken('is no line of a journal')
    if (lines.length === 0) {
      if (read.kind !== 'header') return broken('the beginning of the file is missing')
      first = String(read.previous)
      last ??= first
      if (last !== first) return broken('does not go on from the file before')
    }
    last = chainHash(last ?? ROOT, record)
    if (last !== hash) return broken('was changed, or a line before it is missing')
    lines.push(read as unknown as Line)
  }
  return { ok: true, lines, previous: first, last: last ?? ROOT }
}

/** Checks the chain of a file. */
export const verifyFile = (path: string): Promise<Verified> =>
  readFile(path, 'utf8').then((text) => verifyText(text))
