import type { KeyObject } from 'node:crypto'
import type { Line } from './chain.ts'
import { type Head, headPath, lostAfter, readHead, readKey, readOrNothing } from './head.ts'
import { type ChainLines, readChain } from './read-chain.ts'
import { numbered } from '../../units/numbered.ts'

/** A problem of a journal. */
export interface JournalProblem {
  readonly file: string
  /** From 1. */
  readonly line?: number
  /** Number of the last entry before the problem. */
  readonly afterSeq?: number
  readonly why: string
}

export interface JournalCheck {
  readonly entries: number
  readonly files: number
  /** Number of entries that were never written, as the journal or its head says. Above 0, the journal is incomplete. */
  readonly dropped: number
  /** Empty when nobody without the key has changed, removed, added, moved or made a line or a file. */
  readonly problems: readonly JournalProblem[]
}

/** Maximum number of older files that a config can keep. */
const MAX_FILES = 100

/** Maximum number of attempts to read a journal that is rotated during the check. */
const TRIES = 3

interface ReadFile {
  readonly path: string
  readonly chain: ChainLines
}

/**
 * Checks a journal, its older files included. `folder`: the folder of key and head. Rejects when a file cannot be read.
 */
export async function verifyJournal(path: string, folder: string): Promise<JournalCheck> {
  const key = await readKey(folder)
  if (key === undefined) {
    const isThere = (await readOrNothing(path)) !== undefined
    return nothing([
      { file: path, why: isThere ? `cannot be checked: there is no key in ${folder}` : 'is not there' },
    ])
  }
  for (let tries = 1; ; tries++) {
    const head = await readHead(headPath(folder, path), key)
    const files = await readFiles(path, key)
    const isEmpty = (await readOrNothing(path)) === ''
    const after = await readHead(headPath(folder, path), key)
    const isMoved = typeof head !== 'string' && typeof after !== 'string' && head.file !== after.file
    if (!isMoved || tries === TRIES) return checked({ path, isEmpty }, files, head)
  }
}

const nothing = (problems: readonly JournalProblem[]): JournalCheck => ({
  entries: 0,
  files: 0,
  dropped: 0,
  problems,
})

/** Reads the files of a journal, the newest first. */
async function readFiles(path: string, key: KeyObject): Promise<readonly ReadFile[]> {
  const files: ReadFile[] = []
  for (let number = 0; number <= MAX_FILES; number++) {
    const name = number === 0 ? path : `${path}.${number}`
    const chain = await readChain(name, key)
    if (chain === undefined) continue
    if (chain.bytes + chain.cutBytes > 0 || chain.broken !== undefined) files.push({ path: name, chain })
  }
  return files
}

function checked(
  newest: { readonly path: string; readonly isEmpty: boolean },
  found: readonly ReadFile[],
  head: Head | 'none' | 'forged',
): JournalCheck {
  const { path } = newest
  if (head === 'none' && found.length === 0)
    return nothing([
      { file: path, why: newest.isEmpty ? 'is empty, and has no head' : 'does not exist, and never did' },
    ])
  const problems: JournalProblem[] = []
  if (head === 'none')
    problems.push({
      file: path,
      why: 'has no head: the head was removed, or the journal was moved or copied (a head belongs to one path)',
    })
  if (head === 'forged') problems.push({ file: path, why: 'has a head that was made without the key' })
  const known = typeof head === 'string' ? undefined : head
  // A dropped file may still exist because fewer files are kept now: it is no longer part of the journal.
  const files = found.filter(({ chain }) => (chain.header?.file ?? Infinity) >= (known?.oldest ?? 1))
  for (const file of files) problems.push(...brokenIn(file, known))
  problems.push(...orderOf(files, newest, known))
  if (known !== undefined) problems.push(...endOf(files, known))
  const lines = files.flatMap(({ chain }) => chain.lines)
  const latest = files.at(0)?.chain
  const atEnd = known === undefined ? 0 : latest === undefined ? (known.lost ?? 0) : lostAfter(known, latest)
  return {
    entries: lines.filter(isEntry).length,
    files: files.length,
    dropped: lines.reduce((sum, line) => sum + (line.kind === 'gap' ? line.dropped : 0), atEnd),
    problems,
  }
}

const isEntry = ({ kind }: Line) => kind !== 'header' && kind !== 'gap'

function brokenIn({ path, chain }: ReadFile, head: Head | undefined): JournalProblem[] {
  const { broken, cutBytes, hashes, lines, header } = chain
  // The gateway may be writing the last line of the newest file, or was killed while writing it.
  const isCut = cutBytes > 0 && !(header !== undefined && header.file >= (head?.file ?? Infinity))
  const wrong = broken ?? (isCut ? { line: hashes.length + 1, why: 'is cut off in the middle' } : undefined)
  if (wrong === undefined) return []
  const afterSeq = lines.findLast((line) => 'seq' in line)?.seq
  return [{ file: path, line: wrong.line, ...(afterSeq !== undefined && { afterSeq }), why: wrong.why }]
}

/** Checks that the files follow each other, from the oldest required file. */
function orderOf(
  files: readonly ReadFile[],
  { path, isEmpty }: { readonly path: string; readonly isEmpty: boolean },
  head: Head | undefined,
): JournalProblem[] {
  const problems: JournalProblem[] = []
  const ordered = files.filter(({ chain }) => chain.header !== undefined).reverse()
  let before: ReadFile | undefined
  let expected = head?.oldest
  for (const file of ordered) {
    const { header, hashes } = file.chain
    const number = header!.file
    if (expected !== undefined && number > expected)
      problems.push({ file: file.path, why: missing(expected, number - 1) })
    if (expected !== undefined && number < expected)
      problems.push({
        file: file.path,
        why: `is file ${number} of the journal, expected file ${expected}: the file was exchanged`,
      })
    const end = before?.chain.hashes.at(-1)
    const isNext = before !== undefined && before.chain.header!.file === number - 1
    if (isNext && isWhole(before!.chain) && end !== header!.previous) {
      const why = `does not continue ${before!.path}: last lines are missing there, or a file was exchanged`
      problems.push({ file: file.path, line: 1, why })
    }
    if (hashes.length > 0) before = file
    expected = number + 1
  }
  if (head !== undefined && expected !== undefined && expected <= head.file)
    problems.push({ file: path, why: `${isEmpty ? 'is empty: ' : ''}${missing(expected, head.file)}` })
  return problems
}

const isWhole = ({ broken, cutBytes }: ChainLines) => broken === undefined && cutBytes === 0

const missing = (from: number, to: number) =>
  from === to ? `file ${from} of the journal is missing` : `files ${from} to ${to} of the journal are missing`

/** Returns a problem when the last line known to the head is missing or differs. */
function endOf(files: readonly ReadFile[], { file, line, hash }: Head): JournalProblem[] {
  const last = files.find(({ chain }) => chain.header?.file === file)
  if (last === undefined || line === 0) return []
  const { hashes, lines, broken } = last.chain
  if (broken !== undefined) return []
  if (hashes[line - 1] === hash) return []
  const afterSeq = lines.findLast((entry) => 'seq' in entry)?.seq
  const why =
    hashes.length < line
      ? `is missing: the gateway wrote ${numbered(line, 'line')} to the file, and ${hashes.length} of them are there`
      : `line ${line} differs from the line in the head: the file was exchanged`
  return [
    {
      file: last.path,
      line: Math.min(line, hashes.length + 1),
      ...(afterSeq !== undefined && { afterSeq }),
      why,
    },
  ]
}
