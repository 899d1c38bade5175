import { access } from 'node:fs/promises'
import { join } from 'node:path'
import { Misuse } from '../shared/arguments.ts'

/** The configs that are found without being named, the first of them first. */
export const configNames = ['breakwater.yaml', 'breakwater.yml', 'breakwater.json', '.mcp.json'] as const

/** The config of a folder; undefined when there is none of these names. Whether it can be read shows when it is. */
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

/** The config that is named, by `--config` or as the one argument. Throws `Misuse`. */
export function namedConfig(
  option: string | undefined,
  [named, ...rest]: readonly string[],
): string | undefined {
  const [extra] = named !== undefined && option !== undefined ? [named] : rest
  if (extra !== undefined) throw new Misuse(`one config at a time: what is "${extra}"?`)
  return named ?? option
}

/** Advice for a folder without a config. */
export const noConfig = `there is no config in this folder (${configNames.join(', ')}):
  breakwater init                 writes a breakwater.yaml to begin with
  breakwater start --config FILE  takes the one that you name, as breakwater validate FILE does`
