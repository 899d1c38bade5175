import { checkedRecords } from '../chaos/journal/chain-file.ts'
import { readKey } from '../chaos/journal/head.ts'
import { drained, parseRecord } from '../chaos/journal/read-chain.ts'
import { hasIndex, indexPlace } from './run-index.ts'
import {
  entryWithoutCells,
  type IndexEntry,
  needsCells,
  readerOf,
  type RunField,
  type Wanted,
} from './stored-run.ts'
import type { RunSummary } from './summary.ts'

/** An index as checked while it was read. */
export interface IndexCheck {
  /** Number of the summaries. */
  readonly runs: number
  /** Hash of each line, the header included; line n is at n − 1. */
  readonly hashes: readonly string[]
  /** Why the index cannot be trusted; empty when whole. */
  readonly problems: readonly string[]
  /** The first of these problems if the index is damaged now, so that runs are missing; else undefined. */
  readonly damage: string | undefined
  /** Summaries of another format, written by another version, which are left out. */
  readonly unread: number
  /** Lines that a process cut by ending while it wrote. */
  readonly cuts: number
}

/**
 * Reads an index, the oldest run first, several runs at a time. Changes nothing, and yields no run of a folder without
 * an index. Leaves out summaries of other formats. Checks the whole chain, whatever is wanted, and returns the check.
 * Rejects when the folder cannot be read.
 */
export async function* readRuns<Field extends RunField = RunField>(
  folder: string,
  wanted: Wanted<Field> = {},
): AsyncGenerator<readonly Pick<RunSummary, Field>[], IndexCheck> {
  const key = await readKey(folder)
  if (key === undefined) {
    const damage = (await hasIndex(folder))
      ? `the key of ${folder} is missing, so no line can be checked`
      : undefined
    const problems = damage === undefined ? [] : [damage]
    return { runs: 0, hashes: [], problems, damage, unread: 0, cuts: 0 }
  }
  const marks: string[] = []
  const ids = new Set<string>()
  let [runs, cuts, unread] = [0, 0, 0]
  const read = readerOf(wanted)
  const entryIn = needsCells(wanted) ? parseRecord : entryWithoutCells
  const { chain, damage } = yield* checkedRecords(indexPlace(folder, key), (record) => {
    const entry = entryIn(record) as IndexEntry | undefined
    if (entry?.kind === 'cut') cuts++
    if (entry?.kind === 'damaged') marks.push(`records earlier damage: ${entry.why}`)
    if (entry?.kind !== 'run') return entry && null
    const { id } = (entry.run as Partial<typeof entry.run> | null) ?? {}
    const run = read(entry.run)
    if (run === 'other') return null
    if (run === undefined || id === undefined) unread++
    // A run counts once.
    else if (ids.has(id)) marks.push(`has run ${id} twice`)
    else {
      ids.add(id)
      runs++
      return run
    }
    return null
  })
  const hashes = chain?.hashes ?? []
  const isTorn = chain !== undefined && chain.cutBytes > 0
  const torn = isTorn ? [`line ${hashes.length + 1} is cut off in the middle`] : []
  const problems = [...(damage === undefined ? [] : [damage]), ...torn, ...marks]
  return { runs, hashes, problems, damage, unread, cuts }
}

/** Checks an index as `readRuns`. */
export const checkIndex = (folder: string): Promise<IndexCheck> =>
  drained(readRuns(folder, { fields: ['id'] }))

/** An index as read from disk. */
export interface ReadIndex<Field extends RunField = RunField> extends Omit<IndexCheck, 'runs'> {
  readonly runs: readonly Pick<RunSummary, Field>[]
}

/** Reads and checks an index as `readRuns`, with all wanted runs in memory. */
export async function readIndex<Field extends RunField = RunField>(
  folder: string,
  wanted: Wanted<Field> = {},
): Promise<ReadIndex<Field>> {
  const runs: Pick<RunSummary, Field>[] = []
  const check = await drained(readRuns(folder, wanted), (run) => runs.push(run))
  return { ...check, runs }
}
