import { access } from 'node:fs/promises'
import type { Env } from '../../config/files/interpolate.ts'
import { formatIssue } from '../../config/issues/issues.ts'
import { loadConfig } from '../../config/load.ts'
import { type ReadIndex, readIndex } from '../../evidence/run-index.ts'
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

interface Where {
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
  const loaded = await loadConfig(file, env)
  if (!loaded.ok) throw new UnusableInput(loaded.errors.map(formatIssue).join('\n'))
  const { stateDir } = loaded.config.gateway
  if (stateDir === undefined) throw new UnusableInput(`${file} has no gateway.stateDir, so no run is kept`)
  return stateDir
}

/** An index with the folder that holds it. */
export type StoredIndex = ReadIndex & { readonly folder: string }

/**
 * Reads the index of a state folder; a running gateway may go on writing. `arms`: the arms whose durations are read;
 * default: all. Rejects with an `UnusableInput`, also without an index: a mistyped folder must not look like a gateway
 * without runs.
 */
export async function storedIndex(where: Where, env: Env, arms?: readonly string[]): Promise<StoredIndex> {
  const folder = await stateFolder(where, env)
  await access(folder).catch(() => {
    throw new UnusableInput(`the state folder ${folder} does not exist, or you may not read it`)
  })
  const cells = (arm: string) => arms?.includes(arm) ?? true
  const index = await readIndex(folder, { cells }).catch((error: Error) => {
    throw new UnusableInput(`the index of runs in ${folder} cannot be read: ${error.message}`)
  })
  if (index.hashes.length === 0 && index.problems.length === 0)
    throw new UnusableInput(
      `${folder} has no index of runs: a gateway makes the index when it starts with this folder as gateway.stateDir`,
    )
  return { ...index, folder }
}

/**
 * Returns the index, see `storedIndex`, for answers about its runs. A damaged index may lack runs, so its problems appear
 * on standard error, and in the answer as printable lines.
 */
export async function storedRuns(
  where: Where,
  { env, out }: { readonly env: Env; readonly out: Pick<Output, 'stderr'> },
  arms?: readonly string[],
): Promise<StoredIndex> {
  const index = await storedIndex(where, env, arms)
  const problems = index.problems.map((problem) => printable(problem))
  for (const problem of problems) out.stderr(`breakwater: the index of runs is damaged: ${problem}`)
  if (problems.length > 0)
    out.stderr(
      `breakwater: the answer has ${numbered(index.runs.length, 'readable run')} only, and runs may be missing`,
    )
  if (index.unread > 0)
    out.stderr(
      `breakwater: ${numbered(index.unread, 'run')} of another format left out: another version of Breakwater reads them`,
    )
  return { ...index, problems }
}
