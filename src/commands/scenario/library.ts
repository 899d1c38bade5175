import { readdir } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { basename, dirname, join } from 'node:path'
import { z } from 'zod'
import { parseSource } from '../../config/files/document.ts'
import { Origins } from '../../config/files/origins.ts'
import { readText } from '../../config/files/read-text.ts'
import { type Reading, readValues } from '../../config/files/read-values.ts'
import { explain } from '../../config/issues/explain.ts'
import { type ConfigIssue, formatIssue } from '../../config/issues/issues.ts'
import { isPlainMap } from '../../config/schema/plain-map.ts'
import { duration } from '../../units/duration.ts'
import { suggest } from '../../units/suggest.ts'

/** Stands in a fault's `match.server` for the servers that a run is aimed at. */
export const SERVER_PLACEHOLDER = '$server'

const sentence = z.string().min(1)

const schema = z.strictObject({
  name: z.string().regex(/^[a-z0-9][a-z0-9-]*$/, 'expected a name of a-z 0-9 -, as its file is called'),
  description: sentence.describe('What goes wrong, and what this asks of the mesh.'),
  expect: z.array(sentence).min(1).describe('What there is to see, and which policy acts.'),
  duration: duration({ min: 1_000 }).describe('How long a run takes unless it is told otherwise.'),
  faults: z
    .array(z.record(z.string(), z.unknown()))
    .min(1)
    .max(100)
    .describe('As in a plan, with $server where the server stands.'),
})

/** Faults that show one thing together, and what to expect of the mesh. */
export type Scenario = z.output<typeof schema>

/** A scenario, or what is wrong with its file, a line each. */
type ReadScenario =
  | { readonly ok: true; readonly scenario: Scenario }
  | { readonly ok: false; readonly problems: readonly string[] }

/** The scenarios that come with the package, found from the sources and from every build of them. */
const libraryFolder = join(
  dirname(createRequire(import.meta.url).resolve('breakwater/package.json')),
  'config',
  'scenarios',
)

/** The names of the library, in the order of the alphabet. */
export async function scenarioNames(folder = libraryFolder): Promise<string[]> {
  const files = await readdir(folder)
  return files.flatMap((file) => (file.endsWith('.yaml') ? [basename(file, '.yaml')] : [])).sort()
}

/** Reads a scenario by its name in the library, or by the path of its file (`./mine.yaml`). */
export async function readScenario(name: string, folder = libraryFolder): Promise<ReadScenario> {
  const isPath = /[/\\]|\.ya?ml$/.test(name)
  const names = isPath ? [] : await scenarioNames(folder)
  if (!isPath && !names.includes(name)) {
    const meant = suggest(name, names)
    const hint = meant === undefined ? `there are ${names.join(', ')}` : `did you mean "${meant}"?`
    return { ok: false, problems: [`there is no scenario "${name}"; ${hint}`] }
  }
  const file = isPath ? name : join(folder, `${name}.yaml`)
  const read = await readText(file)
  if ('problem' in read) return { ok: false, problems: [`${file} ${read.problem}`] }
  const source = parseSource(file, read.text)
  const issues: ConfigIssue[] = source.problems.map(({ position, message }) => {
    return { severity: 'error', file, path: '', ...position, message }
  })
  const reading: Reading = { env: {}, origins: new Origins(), issues, interpolated: new Set() }
  const value = issues.length > 0 ? undefined : readValues(file, source, source.root, [], reading)
  const parsed = schema.safeParse(value, { error: () => '' })
  if (parsed.success && issues.length === 0) return { ok: true, scenario: parsed.data }
  const found =
    issues.length > 0
      ? issues
      : explain(parsed.error?.issues ?? [], { schema, value, origins: reading.origins })
  return { ok: false, problems: found.map(formatIssue) }
}

/** A fault as the runtime API takes it. */
export interface Aimed {
  /** Servers, as a glob. */
  readonly target: string
  readonly config: Readonly<Record<string, unknown>>
}

export interface Aim {
  /** Which servers are hit: a glob. */
  readonly server: string
  /** Whether it may hit tools that are not known to be read-only, whatever the scenario says. */
  readonly allowWrites: boolean
}

/**
 * Aims a fault of a scenario: its servers are told beside it (those of the run, unless it names its own), and its time
 * is that of the run. It keeps its name, on which its draws depend: every run hits the same calls.
 */
export function aimed(fault: Readonly<Record<string, unknown>>, { server, allowWrites }: Aim): Aimed {
  const { ttl: _, match: written, ...rest } = fault
  const { server: own = SERVER_PLACEHOLDER, ...match } = isPlainMap(written) ? written : {}
  const config = {
    ...rest,
    ...(Object.keys(match).length > 0 && { match }),
    ...(allowWrites && { allowWrites }),
  }
  return { target: typeof own === 'string' && own !== SERVER_PLACEHOLDER ? own : server, config }
}
