import type { KeyObject } from 'node:crypto'
import { lstat } from 'node:fs/promises'
import { join } from 'node:path'
import { ChainFile, type ChainPlace, checkedRecords, keepDamaged } from '../chaos/journal/chain-file.ts'
import { openKey, readKey } from '../chaos/journal/head.ts'
import { drained, parseRecord, recordsIn } from '../chaos/journal/read-chain.ts'
import { makeFolder } from '../units/folder.ts'
import { entryWithoutCells, type IndexEntry, toStored } from './stored-run.ts'
import type { RunSummary } from './summary.ts'

/** Returns the path of the index in a state folder. */
export const indexPath = (stateDir: string): string => join(stateDir, 'runs.jsonl')

const headPath = (stateDir: string) => join(stateDir, 'runs.head')

/** Returns the place of an index. A folder may move with its index, so the name of the head does not depend on it. */
export const indexPlace = (stateDir: string, key: KeyObject): ChainPlace => ({
  path: indexPath(stateDir),
  headPath: headPath(stateDir),
  key,
})

export interface OpenedIndex {
  readonly index: RunIndex
  /** The damage found, or the cut of a last line; undefined: the index is whole. */
  readonly problem: string | undefined
}

/**
 * The summaries of all runs of a gateway, as an append-only chain of JSON lines under the key of the state folder. The
 * index outlives the records of the runs. A person's signed anchor proves the lines also against whoever has the key.
 */
export class RunIndex {
  readonly #chain: ChainFile
  /** The runs by id, each with the hash of its handed-in document; null for a run of the gateway. */
  readonly #ids: Map<string, string | null>
  readonly #onRun: (run: unknown) => void

  private constructor(chain: ChainFile, ids: Map<string, string | null>, onRun: (run: unknown) => void) {
    this.#chain = chain
    this.#ids = ids
    this.#onRun = onRun
  }

  /**
   * Opens the index of a state folder; `now` in milliseconds since the epoch. A last line without an end is cut, and the
   * cut is recorded. A damaged index is kept aside, under a name of its own. Rejects when the folder cannot be used.
   * `onRun` gets the summary of each run once, the oldest first: of runs on disk as their line says, without durations,
   * and later of each added run once it is on disk.
   */
  static async open(
    folder: string,
    now: number,
    onRun: (run: unknown) => void = () => undefined,
  ): Promise<OpenedIndex> {
    makeFolder(folder, 0o700)
    const place = indexPlace(folder, await openKey(folder))
    const { path } = place
    const ids = new Map<string, string | null>()
    const note = (record: object) => {
      const entry = record as IndexEntry
      if (entry.kind !== 'run' || ids.has(entry.run.id)) return
      ids.set(...idOf(entry.run))
      onRun(entry.run)
    }
    const { chain, damage } = await drained(checkedRecords(place, entryWithoutCells), note)
    if (damage !== undefined) {
      const entries: IndexEntry[] = []
      await drained(recordsIn(path, place.key, parseRecord), (record) =>
        entries.push(record as unknown as IndexEntry),
      )
      if (chain !== undefined) await keepDamaged(path)
      const begun = await ChainFile.begin<IndexEntry>(place, [
        ...entries,
        { kind: 'damaged', at: now, why: damage },
      ])
      return { index: new RunIndex(begun, ids, onRun), problem: damage }
    }
    if (chain === undefined)
      return { index: new RunIndex(await ChainFile.begin(place), ids, onRun), problem: undefined }
    const index = new RunIndex(await ChainFile.continue(place, chain), ids, onRun)
    if (chain.cutBytes === 0) return { index, problem: undefined }
    await index.#add([{ kind: 'cut', at: now, bytes: chain.cutBytes }])
    return { index, problem: `the last line of ${path} was cut: a process ended while writing` }
  }

  /** Whether the index has a run. */
  has(id: string): boolean {
    return this.#ids.has(id)
  }

  /** Returns the hash of the document from which a client's run was made; null for others. */
  documentOf(id: string): string | null {
    return this.#ids.get(id) ?? null
  }

  /** Size of the file. */
  get bytes(): number {
    return this.#chain.size
  }

  /** Adds runs; resolves once all are on disk. Ignores runs that the index has already. Rejects when writing fails. */
  async addRuns(runs: readonly RunSummary[], now: number): Promise<void> {
    const added = runs.filter((run) => !this.#ids.has(run.id) && this.#ids.set(...idOf(run)))
    await this.#add(added.map((run) => ({ kind: 'run', at: now, run: toStored(run) }))).catch(
      (error: unknown) => {
        for (const { id } of added) this.#ids.delete(id)
        throw error
      },
    )
    for (const run of added) this.#onRun(run)
  }

  #add(entries: readonly IndexEntry[]): Promise<void> {
    return this.#chain.append(entries)
  }

  close(): Promise<void> {
    return this.#chain.close()
  }
}

/** Whether a folder holds the key or the head of an index: a state folder, where nobody else may write `runs.jsonl`. */
export const isStateFolder = async (folder: string): Promise<boolean> =>
  (await exists(headPath(folder))) || (await readKey(folder).catch(() => null)) !== undefined

/** Whether a folder has an index, or the head of one, so that a missing key is damage. */
export const hasIndex = async (folder: string): Promise<boolean> =>
  (await exists(indexPath(folder))) || (await exists(headPath(folder)))

const exists = (path: string): Promise<boolean> =>
  lstat(path).then(
    () => true,
    (error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT') throw error
      return false
    },
  )

/** Lines of earlier builds have no document. */
const idOf = ({ id, document }: Pick<RunSummary, 'id'> & Partial<Pick<RunSummary, 'document'>>) =>
  [id, document ?? null] as const
