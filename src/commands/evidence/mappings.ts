import { readdir } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { type ComplianceMapping, complianceMapping } from '../../evidence/compliance.ts'
import { readBy } from '../../load/workload.ts'
import { glob } from '../../mesh/match.ts'
import { didYouMean } from '../../units/suggest.ts'
import { UnusableInput } from '../shared/arguments.ts'

/** Returns the folder of the package's mappings; it works from the sources and from every build. */
const shippedFolder = (): string =>
  join(dirname(createRequire(import.meta.url).resolve('breakwater/package.json')), 'config', 'compliance')

/** Returns the names of the package's frameworks, sorted. */
export async function shippedFrameworks(): Promise<readonly string[]> {
  const files = await readdir(shippedFolder())
  return files
    .filter((file) => file.endsWith('.yaml'))
    .map((file) => file.slice(0, -'.yaml'.length))
    .sort()
}

/** Reads a mapping of the package by its framework. Rejects with an `UnusableInput`. */
export async function shippedMapping(framework: string): Promise<ComplianceMapping> {
  const names = await shippedFrameworks()
  if (!names.includes(framework))
    throw new UnusableInput(
      `there is no mapping for "${framework}"${didYouMean(framework, names)}; there are ${names.join(', ')}`,
    )
  return mappingAt(join(shippedFolder(), `${framework}.yaml`))
}

/** Reads a mapping from a YAML or JSON file. Rejects with an `UnusableInput`, a line for each problem. */
export async function mappingAt(file: string): Promise<ComplianceMapping> {
  const read = await readBy(file, () => complianceMapping)
  if (!read.ok) throw new UnusableInput(read.problems.join('\n'))
  const { faults } = await import('../../chaos/faults/index.ts')
  const types = Object.keys(faults)
  // A misspelt type would match no run, and look like a gap.
  const unknown = read.value.requirements.flatMap(({ id, supports }) =>
    supports.faults.filter((pattern) => !types.some(glob(pattern))).map((pattern) => ({ id, pattern })),
  )
  if (unknown.length > 0)
    throw new UnusableInput(
      unknown
        .map(
          ({ id, pattern }) =>
            `${file}: ${id}: no type of fault matches "${pattern}"${didYouMean(pattern, types)}`,
        )
        .join('\n'),
    )
  return read.value
}
