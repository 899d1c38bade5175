import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

/** The folder of the project, from the build of this file. */
export const root = fileURLToPath(new URL('../../..', import.meta.url))

/** A package installed with Breakwater. */
export interface InstalledPackage {
  readonly name: string
  readonly version: string
  /** As declared by its author, usually an SPDX expression; undefined if undeclared. */
  readonly licence: string | undefined
}

interface LockedPackage {
  readonly name?: string
  readonly version?: string
  readonly license?: string
  readonly dev?: boolean
}

/** Runtime packages of a lockfile, each name and version once. Missing licences are read from the package's folder. */
export async function runtimePackages(folder = root): Promise<InstalledPackage[]> {
  const lock = JSON.parse(await readFile(join(folder, 'package-lock.json'), 'utf8')) as {
    packages: Readonly<Record<string, LockedPackage>>
  }
  const found = new Map<string, InstalledPackage>()
  for (const [path, { name, version = '', license, dev = false }] of Object.entries(lock.packages)) {
    if (path === '' || dev) continue
    const known = name ?? path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length)
    const licence = license ?? (await licenceIn(join(folder, path)))
    found.set(`${known}@${version}`, { name: known, version, licence })
  }
  return [...found.values()].sort(
    (one, other) => compare(one.name, other.name) || compare(one.version, other.version),
  )
}

// Compares without the locale, so that the order is the same on every machine.
const compare = (one: string, other: string) => (one < other ? -1 : one > other ? 1 : 0)

async function licenceIn(folder: string): Promise<string | undefined> {
  const text = await readFile(join(folder, 'package.json'), 'utf8').catch(() => '{}')
  const { license } = JSON.parse(text) as { license?: unknown }
  return typeof license === 'string' ? license : undefined
}
