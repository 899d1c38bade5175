import type { Env } from '../../config/files/interpolate.ts'
import { formatIssue } from '../../config/issues/issues.ts'
import { loadConfig } from '../../config/load.ts'
import { type ReadIndex, readIndex } from '../../evidence/run-index.ts'
import { configNames, findConfig } from '../run/find-config.ts'
import { numbered } from '../../units/numbered.ts'
import { type Output, UnusableInput } from '../shared/arguments.ts'

/** The options of commands that read the index of runs. */
export const storedRunsOptions = {
  state: { kind: 'text', value: 'DIR', about: 'the state folder of a gateway (gateway.stateDir)' },
  config: {
    kind: 'text',
    value: 'FILE',
    about: `the config that names the state folder (default: the first of ${configNames.join(', ')})`,
  },
} as const

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
  const cells = (arm: string) => arms?.includes(arm) ?? true
  const index = await readIndex(folder, { cells }).catch((error: Error) => {
    throw new UnusableInput(`the index of runs in ${folder} cannot be read: ${error.message}`)
  })
  if (index.hashes.length === 0 && index.problems.length === 0)
    throw new UnusableInput(
      `${folder} has no index of runs: expected the gateway.stateDir of a gateway that has been started`,
    )
  return { ...index, folder }
}

/**
 * Returns the index, see `storedIndex`, for answers about its runs. A damaged index may lack runs, so its problems appear
 * on standard error.
 */
export async function storedRuns(
  where: Where,
  { env, out }: { readonly env: Env; readonly out: Output },
  arms?: readonly string[],
): Promise<StoredIndex> {
  const index = await storedIndex(where, env, arms)
  for (const problem of index.problems)
    out.stderr(`breakwater: the index of runs cannot be trusted: ${problem}`)
  if (index.unread > 0)
    out.stderr(
      `breakwater: ${numbered(index.unread, 'run')} of another format left out: another version of Breakwater reads them`,
    )
  return index
}
