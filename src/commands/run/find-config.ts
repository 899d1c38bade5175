import { access } from 'node:fs/promises'
import { join } from 'node:path'
import { Misuse } from '../shared/arguments.ts'

/** The config names found by default, in order of preference. */
export const configNames = ['breakwater.yaml', 'breakwater.yml', 'breakwater.json', '.mcp.json'] as const

/** Returns a folder's config path; undefined without a known name. Does not check if the file is readable. */
export async function findConfig(folder: string): Promise<string | undefined> {
  for (const name of configNames) {
    const isThere = await access(join(folder, name)).then(
      () => true,
      ({ code }: NodeJS.ErrnoException) => code !== 'ENOENT' && code !== 'ENOTDIR',
    )
    if (isThere) return name
  }
  return undefined
}

/** Returns the config named by `--config` or by the only argument. Throws `Misuse`. */
export function namedConfig(
  option: string | undefined,
  [named, ...rest]: readonly string[],
): string | undefined {
  const [extra] = named !== undefined && option !== undefined ? [named] : rest
  if (extra !== undefined) throw new Misuse(`expected a single config; unexpected "${extra}"`)
  return named ?? option
}

export const noConfig = `there is no config in this folder (${configNames.join(', ')}):
  breakwater init                 writes a first breakwater.yaml
  breakwater start --config FILE  uses the config FILE, as does breakwater validate FILE`
