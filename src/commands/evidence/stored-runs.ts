import type { Env } from '../../config/files/interpolate.ts'
import { formatIssue } from '../../config/issues/issues.ts'
import { loadConfig } from '../../config/load.ts'
import { type ReadIndex, readIndex } from '../../evidence/run-index.ts'
import type { RunSummary } from '../../evidence/summary.ts'
import { configNames, findConfig } from '../run/find-config.ts'
import { UnusableInput } from '../shared/arguments.ts'

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

/** Returns the state folder. Rejects with an `UnusableInput`. */
export async function stateFolder({ state, config }: Where, env: Env): Promise<string> {
  if (state !== undefined) return state
  const file = config ?? (await findConfig(process.cwd()))
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

/**
 * Reads the index of a state folder; a running gateway may go on writing. `arms`: the arms whose durations are read;
 * default: all. Rejects with an `UnusableInput`.
 */
export async function storedIndex(
  where: Where,
  env: Env,
  arms?: readonly string[],
): Promise<ReadIndex & { readonly folder: string }> {
  const folder = await stateFolder(where, env)
  const cells = (arm: string) => arms?.includes(arm) ?? true
  const index = await readIndex(folder, { cells }).catch((error: Error) => {
    throw new UnusableInput(`the index of runs in ${folder} cannot be read: ${error.message}`)
  })
  return { ...index, folder }
}

/** Returns the summaries of all runs in the index, the oldest first; see `storedIndex`. */
export async function storedRuns(
  where: Where,
  env: Env,
  arms?: readonly string[],
): Promise<readonly RunSummary[]> {
  return (await storedIndex(where, env, arms)).runs
}
