import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { type InstalledPackage, root, runtimePackages } from './packages.ts'

/** Licences that ask for attribution only. People decide on any other licence before adding the licence here. */
const allowed: ReadonlySet<string> = new Set([
  '0BSD',
  'Apache-2.0',
  'BlueOak-1.0.0',
  'BSD-2-Clause',
  'BSD-3-Clause',
  'ISC',
  'MIT',
  'Unlicense',
])

/**
 * Returns true if a licence is allowed: any part of an alternative (`MIT OR GPL-3.0`), all parts of a conjunction
 * (`AND`).
 */
export function isAllowed(licence: string | undefined): boolean {
  if (licence === undefined) return false
  const bare = licence.replaceAll(/[()]/g, ' ').trim()
  return bare
    .split(/ OR /)
    .some((alternative) => alternative.split(/ AND /).every((one) => allowed.has(one.trim())))
}

/** Returns a line for each package with a forbidden licence. */
export const refusals = (packages: readonly InstalledPackage[]): string[] =>
  packages
    .filter(({ licence }) => !isAllowed(licence))
    .map(
      ({ name, version, licence }) =>
        `${name}@${version}: ${licence ?? 'no declared licence'} is not allowed`,
    )

/** The page `docs/licences.md`. */
export function licencesPage(packages: readonly InstalledPackage[]): string {
  const counts = new Map<string, number>()
  for (const { licence = 'none' } of packages) counts.set(licence, (counts.get(licence) ?? 0) + 1)
  const byCount = [...counts].sort(([a, m], [b, n]) => n - m || (a < b ? -1 : 1))
  return [
    '# Licences',
    'Breakwater is licensed under Apache-2.0. This page lists the packages of its lockfile that are installed with Breakwater. `npm run licences` writes this page, and fails if a licence asks for more than attribution.',
    table(
      ['licence', 'packages'],
      byCount.map(([licence, count]) => [licence, String(count)]),
    ),
    table(
      ['package', 'version', 'licence'],
      packages.map(({ name, version, licence = 'none' }) => [name, version, licence]),
    ),
  ]
    .join('\n\n')
    .concat('\n')
}

/** A table in Prettier's format. */
function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const widths = head.map((cell, at) => Math.max(3, cell.length, ...rows.map((row) => row[at]!.length)))
  const line = (cells: readonly string[]) =>
    `| ${cells.map((cell, at) => cell.padEnd(widths[at]!)).join(' | ')} |`
  return [line(head), `| ${widths.map((width) => '-'.repeat(width)).join(' | ')} |`, ...rows.map(line)].join(
    '\n',
  )
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  const packages = await runtimePackages()
  const refused = refusals(packages)
  for (const line of refused) console.error(line)
  if (refused.length === 0) {
    await writeFile(join(root, 'docs', 'licences.md'), licencesPage(packages))
    console.log(`docs/licences.md: ${packages.length} packages`)
  }
  process.exitCode = refused.length === 0 ? 0 : 1
}
