import type { KeyObject } from 'node:crypto'
import { type FileHandle, lstat, open, rename } from 'node:fs/promises'
import { join } from 'node:path'
import { z } from 'zod'
import { chainHash, formatLine, ROOT } from '../chaos/journal/chain.ts'
import { openKey, readHead, readKey, writeHead } from '../chaos/journal/head.ts'
import { readChainFile } from './chain-file.ts'
import { isObject } from '../protocol/jsonrpc.ts'
import { makeFolder } from '../units/folder.ts'
import { runSummary, type RunSummary } from './summary.ts'

const storedSummary = runSummary.extend({
  windows: z
    .array(runSummary.shape.windows.element.extend({ cells: z.string().regex(/^(\d+:\d+( \d+:\d+)*)?$/) }))
    .max(64),
})

/** A summary with the durations of each window as text: `cell:count` pairs, separated by spaces. */
type StoredRun = z.output<typeof storedSummary>

/** An entry of the index; `at`: milliseconds since the Unix epoch. */
export type IndexEntry = { readonly at: number } & (
  | { readonly kind: 'run'; readonly run: StoredRun }
  /** The process ended while writing: the last line was cut, and its run is written again if its record is kept. */
  | { readonly kind: 'cut'; readonly bytes: number }
  /** An earlier index could not be trusted; its readable entries stand before this entry. */
  | { readonly kind: 'damaged'; readonly why: string }
)

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
  readonly #onRun: (run: unknown) => void
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
    onRun: (run: unknown) => void,
  ) {
    this.#onRun = onRun
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
   * cut is recorded. Each damaged index is kept aside, under a name of its own. Rejects when the folder cannot be used.
   * `onRun` gets the summary of each run once, the oldest first: of runs on disk as their line says, and later of each
   * added run once it is on disk.
   */
  static async open(
    folder: string,
    now: number,
    onRun: (run: unknown) => void = () => undefined,
  ): Promise<{ readonly index: RunIndex; readonly problem: string | undefined }> {
    makeFolder(folder, 0o700)
    const key = await openKey(folder)
    const path = indexPath(folder)
    const ids = new Set<string>()
    const { chain, damage } = await checked(folder, key, (entry) => {
      if (entry.kind !== 'run' || ids.has(entry.run.id)) return
      ids.add(entry.run.id)
      onRun(entry.run)
    })
    if (chain === undefined && damage === undefined)
      return { index: await RunIndex.#begin(folder, key, onRun), problem: undefined }
    if (damage !== undefined) {
      const entries: IndexEntry[] = []
      await readChainFile(path, key, (record) => entries.push(record as unknown as IndexEntry))
      if (chain !== undefined) await rename(path, await unusedName(`${path}.damaged`))
      const index = await RunIndex.#begin(folder, key, onRun, [
        ...entries,
        { kind: 'damaged', at: now, why: damage },
      ])
      return { index, problem: damage }
    }
    const { bytes, hashes, cutBytes } = chain!
    const file = await open(path, 'r+', 0o600)
    await file.truncate(bytes)
    const end = { hash: hashes.at(-1)!, line: hashes.length, size: bytes, ids }
    const index = new RunIndex(folder, key, file, end, onRun)
    if (cutBytes === 0) return { index, problem: undefined }
    await index.#add({ kind: 'cut', at: now, bytes: cutBytes })
    return { index, problem: `the last line of ${path} was cut: a process ended while writing` }
  }

  static async #begin(
    folder: string,
    key: KeyObject,
    onRun: (run: unknown) => void,
    entries: readonly IndexEntry[] = [],
  ): Promise<RunIndex> {
    const path = indexPath(folder)
    const draft = `${path}.new`
    const file = await open(draft, 'w+', 0o600)
    const ids = new Set(entries.flatMap((entry) => (entry.kind === 'run' ? [entry.run.id] : [])))
    const index = new RunIndex(folder, key, file, { hash: ROOT, line: 0, size: 0, ids }, onRun)
    await index.#put([{ kind: 'header', at: entries[0]?.at ?? 0, file: 1, previous: ROOT }, ...entries])
    await rename(draft, path)
    await index.#writeHead()
    return index
  }

  /** Whether the index has a run. */
  has(id: string): boolean {
    return this.#ids.has(id)
  }

  /** Adds runs; resolves once all are on disk. Ignores runs that the index has already. Rejects when writing fails. */
  async addRuns(runs: readonly RunSummary[], now: number): Promise<void> {
    const added = runs.filter(({ id }) => !this.#ids.has(id) && this.#ids.add(id))
    const entries = added.map((run): IndexEntry => ({ kind: 'run', at: now, run: toLine(run) }))
    await this.#add(...entries).catch((error: unknown) => {
      for (const { id } of added) this.#ids.delete(id)
      throw error
    })
    for (const run of added) this.#onRun(run)
  }

  #add(...entries: readonly IndexEntry[]): Promise<void> {
    const next = this.#last.then(async () => {
      if (entries.length === 0) return
      await this.#put(entries)
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
    try {
      // A full disk takes a part of the bytes first, without an error.
      for (let at = 0; at < bytes.length;)
        at += (await this.#file.write(bytes, at, bytes.length - at, this.#size + at)).bytesWritten
      await this.#file.datasync()
    } catch (error) {
      // Else a shorter line, later, would leave the rest of these lines behind it.
      await this.#file.truncate(this.#size).catch(() => undefined)
      throw error
    }
    this.#hash = hash
    this.#line += records.length
    this.#size += bytes.length
  }

  async #writeHead(): Promise<void> {
    const head = { file: 1, oldest: 1, line: this.#line, hash: this.#hash }
    await writeHead(headPath(this.#folder), this.#key, head)
  }
}

/** Whether a folder holds the key or the head of an index: a state folder, where nobody else may write `runs.jsonl`. */
export const isStateFolder = async (folder: string): Promise<boolean> =>
  (await exists(headPath(folder))) || (await readKey(folder).catch(() => null)) !== undefined

/** Returns the first of `name`, `name.2`, `name.3` and so on that no file has: evidence is never overwritten. */
async function unusedName(name: string): Promise<string> {
  for (let at = 1; ; at++) {
    const own = at === 1 ? name : `${name}.${at}`
    if (!(await exists(own))) return own
  }
}

const exists = (path: string): Promise<boolean> =>
  lstat(path).then(
    () => true,
    (error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT') throw error
      return false
    },
  )

/** An index as read from disk. */
export interface ReadIndex {
  readonly runs: readonly RunSummary[]
  /** Hash of each line, the header included; line n is at n − 1. */
  readonly hashes: readonly string[]
  /** Why the index cannot be trusted; empty when whole. */
  readonly problems: readonly string[]
  /** The first of these problems if the index is damaged now, so that runs are missing; else undefined. */
  readonly damage: string | undefined
  /** Summaries of another format, written by another version, which `runs` lacks. */
  readonly unread: number
  /** Lines that a process cut by ending while it wrote. */
  readonly cuts: number
}

/**
 * Reads and checks an index without changes; empty for a folder without runs. Leaves out summaries of other formats.
 * `cells`: the arms whose durations are read; without durations, the index takes a tenth of the memory. Rejects when the
 * folder cannot be read.
 */
export async function readIndex(
  folder: string,
  { cells = () => true }: { readonly cells?: (arm: string) => boolean } = {},
): Promise<ReadIndex> {
  const key = await readKey(folder)
  if (key === undefined) {
    const isKeyMissing = (await exists(indexPath(folder))) || (await exists(headPath(folder)))
    const damage = isKeyMissing ? `the key of ${folder} is missing, so no line can be checked` : undefined
    return {
      runs: [],
      hashes: [],
      problems: damage === undefined ? [] : [damage],
      damage,
      unread: 0,
      cuts: 0,
    }
  }
  const runs: RunSummary[] = []
  const marks: string[] = []
  const ids = new Set<string>()
  let [cuts, unread] = [0, 0]
  const { chain, damage } = await checked(folder, key, (entry) => {
    if (entry.kind === 'cut') cuts++
    if (entry.kind === 'damaged') marks.push(`records earlier damage: ${entry.why}`)
    if (entry.kind !== 'run') return
    const read = fromLine(entry.run, cells)
    if (read === undefined) unread++
    // A run counts once.
    else if (ids.has(read.id)) marks.push(`has run ${read.id} twice`)
    else {
      ids.add(read.id)
      runs.push(read)
    }
  })
  const torn =
    chain !== undefined && chain.cutBytes > 0
      ? [`line ${chain.hashes.length + 1} is cut off in the middle`]
      : []
  return {
    runs,
    hashes: chain?.hashes ?? [],
    problems: [...(damage === undefined ? [] : [damage]), ...torn, ...marks],
    damage,
    unread,
    cuts,
  }
}

async function checked(folder: string, key: KeyObject, onEntry: (entry: IndexEntry) => void) {
  const path = indexPath(folder)
  const head = await readHead(headPath(folder), key)
  const chain = await readChainFile(path, key, (record) => onEntry(record as unknown as IndexEntry))
  let damage: string | undefined
  if (chain === undefined && head !== 'none') damage = `${path} is missing`
  // A new index has no head yet when its process ends at once.
  if (head === 'none' && (chain?.hashes.length ?? 0) > 1) damage = `the head of ${path} is missing`
  if (head === 'forged') damage = `the head of ${path} was made without the key`
  if (chain?.broken !== undefined) damage ??= `line ${chain.broken.line} of ${path} ${chain.broken.why}`
  if (chain !== undefined && typeof head === 'object' && chain.hashes[head.line - 1] !== head.hash)
    damage ??= `${path} is older than its head, or was changed`
  return { chain, damage }
}

/** Returns a summary as stored: durations as one text per window, which takes little memory until somebody reads it. */
const toLine = (run: RunSummary): StoredRun => ({
  ...run,
  windows: run.windows.map(({ cells, ...window }) => ({
    ...window,
    cells: cells.map((pair) => pair.join(':')).join(' '),
  })),
})

/** Returns a stored summary; undefined for other formats. */
function fromLine(run: StoredRun, cells: (arm: string) => boolean): RunSummary | undefined {
  // Durations that nobody asks for are most of a line.
  if (!isObject(run) || !Array.isArray(run.windows)) return undefined
  const windows = run.windows.map((window) => (cells(window.arm) ? window : { ...window, cells: '' }))
  const read = storedSummary.safeParse({ ...run, windows })
  if (!read.success) return undefined
  return {
    ...read.data,
    windows: read.data.windows.map((window) => ({ ...window, cells: cellsIn(window.cells) })),
  }
}

const cellsIn = (text: string): [number, number][] =>
  text === ''
    ? []
    : text.split(' ').map((pair) => {
        const [cell, count] = pair.split(':')
        return [Number(cell), Number(count)]
      })
