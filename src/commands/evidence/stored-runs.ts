import { access } from 'node:fs/promises'
import type { Env } from '../../config/files/interpolate.ts'
import { type IndexCheck, type ReadIndex, readIndex, readRuns } from '../../evidence/read-index.ts'
import type { RunField, Wanted } from '../../evidence/stored-run.ts'
import type { RunSummary } from '../../evidence/summary.ts'
import { isQuarter, parsePeriod, type Period } from '../../evidence/period.ts'
import { printable } from '../../telemetry/printable.ts'
import { numbered } from '../../units/numbered.ts'
import { configNames, findConfig } from '../run/find-config.ts'
import { Misuse, type Output, UnusableInput } from '../shared/arguments.ts'

/** The options of commands that read the index of runs. */
export const storedRunsOptions = {
  state: { kind: 'text', value: 'DIR', about: 'the state folder of a gateway (gateway.stateDir)' },
  config: {
    kind: 'text',
    value: 'FILE',
    about: `the config that names the state folder (default: the first of ${configNames.join(', ')})`,
  },
} as const

/** The options that choose runs by the day on which they began. */
export const periodOptions = {
  quarter: {
    kind: 'text',
    value: 'QUARTER',
    about: 'only runs that began in this quarter of UTC, such as 2026Q4',
  },
  period: {
    kind: 'text',
    value: 'PERIOD',
    about: 'instead of a quarter: a year such as 2026, or days such as 2026-10-01..2026-12-31',
  },
} as const

/** Returns the chosen period; undefined without a choice. Throws a `Misuse`. */
export function periodIn(
  { quarter, period }: { readonly quarter: string | undefined; readonly period: string | undefined },
  nowMs: number,
): Period | undefined {
  if (quarter !== undefined && period !== undefined) throw new Misuse('give --quarter or --period, not both')
  if (quarter !== undefined && !isQuarter(quarter))
    throw new Misuse(
      `--quarter must be a quarter such as 2026Q4, not "${quarter}"; --period takes a year or days`,
    )
  const text = quarter ?? period
  if (text === undefined) return undefined
  const read = parsePeriod(text, nowMs)
  if (typeof read === 'string') throw new Misuse(`--${quarter === undefined ? 'period' : 'quarter'}: ${read}`)
  return read
}

export interface Where {
  readonly state: string | undefined
  readonly config: string | undefined
}

/** Returns the config of the gateway: the given one, or without a state folder the config in this folder, if any. */
export const configFile = async ({ state, config }: Where): Promise<string | undefined> =>
  config ?? (state === undefined ? await findConfig(process.cwd()) : undefined)

/** Returns the state folder. Rejects with an `UnusableInput`. */
export async function stateFolder(where: Where, env: Env): Promise<string> {
  const { state } = where
  if (state !== undefined) return state
  const file = await configFile(where)
  if (file === undefined)
    throw new UnusableInput(
      `expected --state DIR, --config FILE, or a config in this folder (${configNames.join(', ')})`,
    )
  // The config's schemas take longer to load than most indexes.
  const [{ loadConfig }, { formatIssue }] = await Promise.all([
    import('../../config/load.ts'),
    import('../../config/issues/issues.ts'),
  ])
  const loaded = await loadConfig(file, env)
  if (!loaded.ok) throw new UnusableInput(loaded.errors.map(formatIssue).join('\n'))
  const { stateDir } = loaded.config.gateway
  if (stateDir === undefined) throw new UnusableInput(`${file} has no gateway.stateDir, so no run is kept`)
  return stateDir
}

/** An index with the folder that holds it. */
export type StoredIndex<Field extends RunField = RunField> = ReadIndex<Field> & { readonly folder: string }

/**
 * Reads the wanted parts of the index of a state folder; a running gateway may go on writing. Rejects with an `UnusableInput`, also without an index: a mistyped folder must not look like a gateway
 * without runs.
 */
export async function storedIndex<Field extends RunField = RunField>(
  where: Where,
  env: Env,
  wanted: Wanted<Field> = {},
): Promise<StoredIndex<Field>> {
  const folder = await stateFolder(where, env)
  await requireFolder(folder)
  const index = await readIndex(folder, wanted).catch((error: unknown) => {
    throw unreadable(folder, error)
  })
  requireIndex(folder, index)
  return { ...index, folder }
}

/**
 * Returns the index, see `storedIndex`, for answers about its runs. A damaged index may lack runs, so its problems appear
 * on standard error, and in the answer as printable lines.
 */
export async function storedRuns<Field extends RunField = RunField>(
  where: Where,
  { env, out }: { readonly env: Env; readonly out: Pick<Output, 'stderr'> },
  wanted: Wanted<Field> = {},
): Promise<StoredIndex<Field>> {
  const index = await storedIndex(where, env, wanted)
  return { ...index, problems: reported(index, index.runs.length, out) }
}

/**
 * Yields all runs of an index one by one, the oldest first, without holding them. `wanted`: see `Wanted`. Reports problems of the index as
 * `storedRuns`, once all runs are read. Rejects as `storedIndex`.
 */
export async function* eachRun(
  where: Where,
  { env, out }: { readonly env: Env; readonly out: Pick<Output, 'stderr'> },
  wanted: Pick<Wanted, 'arms'> = {},
): AsyncGenerator<RunSummary> {
  const folder = await stateFolder(where, env)
  await requireFolder(folder)
  try {
    const reading = readRuns(folder, wanted)
    for (;;) {
      const { done, value } = await reading.next()
      if (done !== true) {
        yield* value
        continue
      }
      requireIndex(folder, value)
      reported(value, value.runs, out)
      return
    }
  } catch (error) {
    throw error instanceof UnusableInput ? error : unreadable(folder, error)
  }
}

/** Reports the problems of an index on standard error. Returns the problems as printable lines. */
function reported(
  { problems: found, unread }: Pick<IndexCheck, 'problems' | 'unread'>,
  runs: number,
  out: Pick<Output, 'stderr'>,
): readonly string[] {
  const problems = found.map((problem) => printable(problem))
  for (const problem of problems) out.stderr(`breakwater: the index of runs is damaged: ${problem}`)
  if (problems.length > 0)
    out.stderr(`breakwater: the answer has ${numbered(runs, 'readable run')} only, and runs may be missing`)
  if (unread > 0)
    out.stderr(
      `breakwater: ${numbered(unread, 'run')} of another format left out: another version of Breakwater reads them`,
    )
  return problems
}

/** Rejects with an `UnusableInput`: a mistyped folder must not look like a gateway without runs. */
async function requireFolder(folder: string): Promise<void> {
  await access(folder).catch(() => {
    throw new UnusableInput(`the state folder ${folder} does not exist, or you may not read it`)
  })
}

/** Throws an `UnusableInput` for a folder without an index. */
function requireIndex(folder: string, { hashes, problems }: Pick<IndexCheck, 'hashes' | 'problems'>): void {
  if (hashes.length === 0 && problems.length === 0)
    throw new UnusableInput(
      `${folder} has no index of runs: a gateway makes the index when it starts with this folder as gateway.stateDir`,
    )
}

const unreadable = (folder: string, error: unknown) =>
  new UnusableInput(`the index of runs in ${folder} cannot be read: ${(error as Error).message}`)

/** Checks the index of a state folder, see `storedIndex`, and returns its folder too. */
export async function checkedIndex(
  where: Where,
  env: Env,
): Promise<IndexCheck & { readonly folder: string }> {
  const { runs, ...index } = await storedIndex(where, env, { fields: ['id'] })
  return { ...index, runs: runs.length }
}
