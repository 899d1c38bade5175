import type { KeyObject } from 'node:crypto'
import { type FileHandle, open, rename } from 'node:fs/promises'
import { join } from 'node:path'
import { chainHash, formatLine, readChain, ROOT } from '../chaos/journal/chain.ts'
import { openKey, readHead, readKey, readOrNothing, writeHead } from '../chaos/journal/head.ts'
import { makeFolder } from '../units/folder.ts'
import { runSummary, type RunSummary } from './summary.ts'

/** An entry of the index; `at`: milliseconds since the Unix epoch. */
export type IndexEntry = { readonly at: number } & (
  | { readonly kind: 'run'; readonly run: RunSummary }
  /** Somebody removed the records of these runs; their summaries stay. */
  | { readonly kind: 'pruned'; readonly runs: readonly string[]; readonly by: string }
  /** The process ended while writing: the last line was cut, and its run is written again if its record is kept. */
  | { readonly kind: 'cut'; readonly bytes: number }
  /** An earlier index could not be trusted; its readable entries stand before this entry. */
  | { readonly kind: 'damaged'; readonly why: string }
)

export type NewIndexEntry = IndexEntry extends infer Entry
  ? Entry extends unknown
    ? Omit<Entry, 'at'>
    : never
  : never

const FILE = 'runs.jsonl'

/** Returns the path of the index in a state folder. */
export const indexPath = (stateDir: string): string => join(stateDir, FILE)

/** A folder may move with its index, so the name of the head does not depend on the path. */
const headPath = (stateDir: string) => join(stateDir, 'runs.head')

/**
 * The summaries of all runs of a gateway, as an append-only chain of JSON lines under the key of the state folder. The
 * index outlives the records of the runs. A person's signed anchor proves the lines also against whoever has the key.
 */
export class RunIndex {
  readonly #folder: string
  readonly #key: KeyObject
  readonly #file: FileHandle
  readonly #ids: Set<string>
  #hash: string
  #line: number
  #size: number
  #last: Promise<unknown> = Promise.resolve()

  private constructor(
    folder: string,
    key: KeyObject,
    file: FileHandle,
    end: {
      readonly hash: string
      readonly line: number
      readonly size: number
      readonly ids: Set<string>
    },
  ) {
    this.#folder = folder
    this.#key = key
    this.#file = file
    this.#hash = end.hash
    this.#line = end.line
    this.#size = end.size
    this.#ids = end.ids
  }

  /**
   * Opens the index of a state folder; `now` in milliseconds since the epoch. A last line without an end is cut, and the
   * cut is recorded. A damaged index is kept aside. Rejects when the folder cannot be used.
   */
  static async open(
    folder: string,
    now: number,
  ): Promise<{ readonly index: RunIndex; readonly problem: string | undefined }> {
    makeFolder(folder, 0o700)
    const key = await openKey(folder)
    const { chain, damage, cutBytes } = await readFileOf(folder, key)
    const entries = (chain?.lines ?? []).slice(1) as unknown as IndexEntry[]
    if (chain === undefined && damage === undefined)
      return { index: await RunIndex.#begin(folder, key, []), problem: undefined }
    if (damage !== undefined) {
      if (chain !== undefined) await rename(indexPath(folder), `${indexPath(folder)}.damaged`)
      const marked: IndexEntry[] = [...entries, { kind: 'damaged', at: now, why: damage }]
      return { index: await RunIndex.#begin(folder, key, marked), problem: damage }
    }
    const file = await open(indexPath(folder), 'r+', 0o600)
    await file.truncate(chain!.bytes)
    const end = {
      hash: chain!.hashes.at(-1)!,
      line: chain!.lines.length,
      size: chain!.bytes,
      ids: idsIn(entries),
    }
    const index = new RunIndex(folder, key, file, end)
    if (cutBytes > 0) await index.add({ kind: 'cut', at: now, bytes: cutBytes })
    const problem =
      cutBytes > 0
        ? `the last line of ${indexPath(folder)} was cut: a process ended while writing`
        : undefined
    return { index, problem }
  }

  static async #begin(folder: string, key: KeyObject, entries: readonly IndexEntry[]): Promise<RunIndex> {
    const path = indexPath(folder)
    const draft = `${path}.new`
    const file = await open(draft, 'w+', 0o600)
    const end = { hash: ROOT, line: 0, size: 0, ids: idsIn(entries) }
    const index = new RunIndex(folder, key, file, end)
    await index.#put([{ kind: 'header', at: entries[0]?.at ?? 0, file: 1, previous: ROOT }, ...entries])
    await rename(draft, path)
    await index.#writeHead()
    return index
  }

  /** Whether the index has a run. */
  has(id: string): boolean {
    return this.#ids.has(id)
  }

  /** Resolves once the entry is on disk. A run that the index has already is ignored. Rejects when writing fails. */
  add(entry: IndexEntry): Promise<void> {
    const next = this.#last.then(async () => {
      if (entry.kind === 'run') {
        if (this.#ids.has(entry.run.id)) return
        this.#ids.add(entry.run.id)
      }
      await this.#put([entry])
      await this.#writeHead()
    })
    this.#last = next.catch(() => undefined)
    return next
  }

  async close(): Promise<void> {
    await this.#last
    await this.#file.close()
  }

  async #put(records: readonly object[]): Promise<void> {
    let hash = this.#hash
    let text = ''
    for (const record of records) {
      const json = JSON.stringify(record)
      hash = chainHash(this.#key, hash, json)
      text += formatLine(hash, json)
    }
    const bytes = Buffer.from(text)
    await this.#file.write(bytes, 0, bytes.length, this.#size)
    await this.#file.datasync()
    this.#hash = hash
    this.#line += records.length
    this.#size += bytes.length
  }

  async #writeHead(): Promise<void> {
    const head = { file: 1, oldest: 1, line: this.#line, hash: this.#hash }
    await writeHead(headPath(this.#folder), this.#key, head)
  }
}

const idsIn = (entries: readonly IndexEntry[]) =>
  new Set(entries.flatMap((entry) => (entry.kind === 'run' ? [entry.run.id] : [])))

/** An index as read from disk. */
export interface ReadIndex {
  readonly entries: readonly IndexEntry[]
  /** Hash of each line, the header included; line n is at n − 1. */
  readonly hashes: readonly string[]
  /** Why the index cannot be trusted; empty when whole. */
  readonly problems: readonly string[]
}

/**
 * Reads and checks an index without changes; empty for a folder without runs. Rejects when the folder cannot be read, or
 * has no key.
 */
export async function readIndex(folder: string): Promise<ReadIndex> {
  const key = await readKey(folder)
  if (key === undefined) return { entries: [], hashes: [], problems: [] }
  const { chain, damage, cutBytes } = await readFileOf(folder, key)
  const entries = (chain?.lines ?? []).slice(1) as unknown as IndexEntry[]
  const marks = entries.flatMap((entry) =>
    entry.kind === 'damaged' ? [`records earlier damage: ${entry.why}`] : [],
  )
  const torn = cutBytes > 0 ? [`line ${(chain?.lines.length ?? 0) + 1} is cut off in the middle`] : []
  return {
    entries,
    hashes: chain?.hashes ?? [],
    problems: [...(damage === undefined ? [] : [damage]), ...torn, ...marks],
  }
}

async function readFileOf(folder: string, key: KeyObject) {
  const path = indexPath(folder)
  const text = await readOrNothing(path)
  const head = await readHead(headPath(folder), key)
  let damage: string | undefined
  if (text === undefined && head !== 'none') damage = `${path} is missing`
  if (head === 'forged') damage = `the head of ${path} was made without the key`
  const chain = text === undefined ? undefined : readChain(text, key)
  const { broken } = chain ?? {}
  // A new index has no head yet when its process ends at once.
  if (head === 'none' && (chain?.lines.length ?? 0) > 1) damage ??= `the head of ${path} is missing`
  if (broken !== undefined && !broken.isTorn) damage ??= `line ${broken.line} of ${path} ${broken.why}`
  if (chain !== undefined && typeof head === 'object' && chain.hashes[head.line - 1] !== head.hash)
    damage ??= `${path} is older than its head, or was changed`
  const cutBytes = broken?.isTorn === true ? Buffer.byteLength(text!) - chain!.bytes : 0
  return { chain, damage, cutBytes }
}

/** Returns the runs of an index, the oldest first. Entries that are no summaries are left out. */
export const runsIn = ({ entries }: Pick<ReadIndex, 'entries'>): readonly RunSummary[] =>
  entries.flatMap((entry) => {
    if (entry.kind !== 'run') return []
    const read = runSummary.safeParse(entry.run)
    return read.success ? [read.data] : []
  })
