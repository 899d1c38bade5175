import { lstat } from 'node:fs/promises'

/** Most damaged files kept beside a file: the first files, and the latest. */
const MAX_DAMAGED = 5

/**
 * Returns a name for a damaged file: the first free name of `{path}.damaged`, `{path}.damaged.2`, … `{path}.damaged.5`,
 * else the last name.
 */
export async function nameAside(path: string): Promise<string> {
  const names = Array.from(
    { length: MAX_DAMAGED },
    (_, at) => `${path}.damaged${at === 0 ? '' : `.${at + 1}`}`,
  )
  for (const name of names) if (!(await isThere(name))) return name
  return names.at(-1)!
}

const isThere = (path: string): Promise<boolean> =>
  lstat(path).then(
    () => true,
    () => false,
  )
