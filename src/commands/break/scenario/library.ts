import { readdir, stat } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { basename, dirname, join } from 'node:path'
import { z } from 'zod'
import { parseSource } from '../../../config/files/document.ts'
import { Origins } from '../../../config/files/places.ts'
import { readText } from '../../../config/files/read-text.ts'
import { type Reading, readValues } from '../../../config/files/read-values.ts'
import { explain } from '../../../config/issues/explain.ts'
import { type ConfigIssue, formatIssue } from '../../../config/issues/issues.ts'
import { refusalOf, type Transport, transports } from '../../../chaos/fault.ts'
import { faults as types } from '../../../chaos/faults/index.ts'
import { contradictions } from '../../../chaos/plan/checks.ts'
import { faultSchema } from '../../../chaos/plan/schema.ts'
import type { Millis } from '../../../mesh/clock.ts'
import { glob } from '../../../mesh/match.ts'
import { isPlainMap } from '../../../config/schema/server-names.ts'
import { duration } from '../../../units/duration.ts'
import { suggest } from '../../../units/suggest.ts'
import { assertionsSchema, type WrittenCalls } from './assertions-schema.ts'

/** Placeholder in a fault's `match.server` for the target servers of the run. */
export const SERVER_PLACEHOLDER = '$server'

/** Maximum number of calls per second made by a run. */
export const MAX_RATE = 100

const sentence = z.string().min(1)

const schema = z.strictObject({
  name: z.string().regex(/^[a-z0-9][a-z0-9-]*$/, 'expected a name of a-z 0-9 -, equal to the file name'),
  description: sentence.describe('The failure, and the task of the mesh.'),
  expect: z.array(sentence).min(1).optional().describe('The expected effects and the acting policy.'),
  assert: assertionsSchema.describe('Assertions on a run.'),
  hits: z
    .enum(['one_server', 'all_servers'])
    .default('one_server')
    .describe('Default servers to hit: the first suitable server, or all.'),
  transports: z
    .array(z.enum(transports))
    .min(1)
    .optional()
    .describe(
      'Transports of servers where the assertions make sense (default: all transports its faults can hit).',
    ),
  traffic: z.int().min(1).max(MAX_RATE).default(20).describe("Default of the run's own calls a second."),
  duration: duration({ min: 1_000 }).describe('Default duration of the faults.'),
  faults: z
    .array(z.record(z.string(), z.unknown()))
    .min(1)
    .max(100)
    .describe('As in a plan, with $server as the server.'),
})

/** A scenario with its faults as in a plan: each must be injectable, and names must be unique. */
const plannedSchema = z.strictObject({
  ...schema.shape,
  faults: z
    .array(faultSchema())
    .min(1)
    .max(100)
    .superRefine((faults, context) => {
      // The lifetime of faults is not checked here: the run sets it, and the gateway limits it.
      for (const { path, message } of contradictions({ faults, maxTtl: Infinity }, types))
        context.addIssue({ code: 'custom', path: path.slice(1), message })
    }),
})

/** Faults to demonstrate an effect, and the expected reaction of the mesh. */
export type Scenario = z.output<typeof schema>

/** A scenario, or the problems of its file. Each problem is one line. */
type ReadScenario =
  | { readonly ok: true; readonly scenario: Scenario }
  | { readonly ok: false; readonly problems: readonly string[] }

/** The folder with the scenarios of the package; the path works from the sources and from every build. */
const libraryFolder = join(
  dirname(createRequire(import.meta.url).resolve('breakwater/package.json')),
  'config',
  'scenarios',
)

export async function scenarioNames(folder = libraryFolder): Promise<string[]> {
  const files = await readdir(folder)
  return files.flatMap((file) => (file.endsWith('.yaml') ? [basename(file, '.yaml')] : [])).sort()
}

/** Reads a scenario by library name or file path (`./mine.yaml`). */
export async function readScenario(name: string, folder = libraryFolder): Promise<ReadScenario> {
  const isPath = /[/\\]|\.ya?ml$/.test(name)
  const names = isPath ? [] : await scenarioNames(folder)
  if (!isPath && !names.includes(name)) {
    const meant = suggest(name, names)
    const hint = meant === undefined ? `there are ${names.join(', ')}` : `did you mean "${meant}"?`
    return { ok: false, problems: [`there is no scenario "${name}"; ${hint}`] }
  }
  const file = isPath ? name : join(folder, `${name}.yaml`)
  // Refuses pipes, because reading a pipe without a writer never ends. A missing file is reported by `readText` below.
  const kind = await stat(file).catch(() => undefined)
  if (kind !== undefined && !kind.isFile() && !kind.isDirectory())
    return { ok: false, problems: [`${file} cannot be read: it is no regular file`] }
  const read = await readText(file)
  if ('problem' in read) return { ok: false, problems: [`${file} ${read.problem}`] }
  const source = parseSource(file, read.text)
  const issues: ConfigIssue[] = source.problems.map(({ position, message }) => {
    return { severity: 'error', file, path: '', ...position, message }
  })
  const reading: Reading = { env: {}, origins: new Origins(), issues, interpolated: new Set() }
  const value = issues.length > 0 ? undefined : readValues(file, source, source.root, [], reading)
  const asPlan = planned(value)
  const checked = plannedSchema.safeParse(asPlan, { error: () => '' })
  // The scenario keeps its faults as written, because the gateway applies its own defaults.
  const parsed = schema.safeParse(value, { error: () => '' })
  if (checked.success && parsed.success && issues.length === 0) return { ok: true, scenario: parsed.data }
  const about = { schema: plannedSchema, value: asPlan, origins: reading.origins }
  const wrong = checked.error?.issues ?? parsed.error?.issues ?? []
  return { ok: false, problems: (issues.length > 0 ? issues : explain(wrong, about)).map(formatIssue) }
}

/** Returns a scenario as a plan: its faults target any server, and last as long as the run. */
function planned(value: unknown): unknown {
  if (!isPlainMap(value) || !Array.isArray(value.faults)) return value
  const faults = value.faults.map((fault: unknown) => {
    if (!isPlainMap(fault)) return fault
    const { match } = fault
    return {
      // A run sets its own time, and ignores a fault's `ttl`.
      ttl: value.duration,
      ...fault,
      ...(isPlainMap(match) && match.server === SERVER_PLACEHOLDER && { match: { ...match, server: '*' } }),
    }
  })
  return { ...value, faults }
}

export interface Aimed {
  /** Glob of the servers that the fault hits. */
  readonly target: string
  readonly config: Readonly<Record<string, unknown>>
}

export interface Aim {
  /** Glob of the servers to hit. */
  readonly server: string
  /** True if faults also hit tools not known to be read-only, even if the scenario forbids it. */
  readonly allowWrites: boolean
}

/**
 * Aims a fault of a scenario: adds its target servers (the run's servers, unless the fault names others) and the run's
 * time. The name stays the same, because draws depend on the name: every run hits the same calls.
 */
export function aimed(fault: Readonly<Record<string, unknown>>, { server, allowWrites }: Aim): Aimed {
  const { ttl: _, match: written, ...rest } = fault
  const { server: own = SERVER_PLACEHOLDER, ...match } = matchSchema.parse(written)
  const config = {
    ...rest,
    ...(Object.keys(match).length > 0 && { match }),
    ...(allowWrites && { allowWrites }),
  }
  return { target: own === SERVER_PLACEHOLDER ? server : own, config }
}

/** The fields of a fault's `match` needed for aiming. */
const matchSchema = z.looseObject({ server: z.string().optional() }).default({})

/**
 * Returns true if a scenario can run against servers with this transport: every fault of the scenario has to work
 * there.
 */
export function canHit(
  { faults, transports: only }: Pick<Scenario, 'faults' | 'transports'>,
  transport: Transport | undefined,
): boolean {
  if (transport === undefined) return true
  if (only !== undefined && !only.includes(transport)) return false
  return faults.every(({ type, side }) => {
    const known = types[String(type)]
    return (
      side === 'client' ||
      (known !== undefined && refusalOf(known, { transport, era: undefined }) === undefined)
    )
  })
}

export function hitBy({ faults }: Pick<Scenario, 'faults'>, aim: Aim, servers: readonly string[]): string[] {
  const globs = faults.map((fault) => glob(aimed(fault, aim).target))
  return servers.filter((server) => globs.some((isOne) => isOne(server)))
}

/**
 * Returns the time during which a fault hits calls, in milliseconds since arming; undefined without a window in the
 * file, or with wrong durations.
 */
function windowOf(fault: Readonly<Record<string, unknown>>): {
  readonly from?: Millis
  readonly to?: Millis
} {
  const window = isPlainMap(fault.when) && isPlainMap(fault.when.window) ? fault.when.window : {}
  const read = (key: 'from' | 'to') => {
    const { success, data } = duration().safeParse(window[key])
    return success ? { [key]: data } : {}
  }
  return { ...read('from'), ...read('to') }
}

/**
 * Returns the start delay in a fault's own field `after`, as in `auth.expired`, in milliseconds since arming; undefined
 * without `after`.
 */
function afterOf({ type, after }: Readonly<Record<string, unknown>>): Millis | undefined {
  if (types[String(type)]?.family !== 'auth') return undefined
  const { success, data } = duration().safeParse(after)
  return success ? data : undefined
}

/** Returns the time at which the last fault stops hitting calls, in a run of this length. */
export const faultsEnd = ({ faults }: Pick<Scenario, 'faults'>, durationMs: Millis): Millis =>
  Math.min(durationMs, Math.max(...faults.map((fault) => windowOf(fault).to ?? durationMs)))

/** Scales a scenario to another duration, with its phases and their assertions. */
export function lasting(scenario: Scenario, durationMs: Millis): Scenario {
  if (durationMs === scenario.duration) return scenario
  /** Returns a copy of `times` in which the values under these names are scaled. */
  const scaled = <Times extends object>(times: Times, ...names: readonly (keyof Times)[]): Times =>
    Object.fromEntries(
      Object.entries(times).map(([name, value]) => {
        const isScaled = typeof value === 'number' && names.includes(name as keyof Times)
        return [name, isScaled ? Math.round((value * durationMs) / scenario.duration) : value]
      }),
    ) as Times
  const faults = scenario.faults.map((fault) => {
    const window = scaled(windowOf(fault), 'from', 'to')
    const after = afterOf(fault)
    const hasWindow = Object.keys(window).length > 0
    if (!hasWindow && after === undefined) return fault
    return {
      ...fault,
      ...(after !== undefined && scaled({ after }, 'after')),
      ...(hasWindow && { when: { ...(fault.when as object), window } }),
    }
  })
  // Without phases, the effects over time do not change with the duration.
  if (faults.every((fault, index) => fault === scenario.faults[index]))
    return { ...scenario, duration: durationMs }
  const { calls, breaker } = scenario.assert
  const opens = breaker?.opens
  const phase = (one: WrittenCalls) => scaled(one, 'from', 'to')
  const assert = {
    ...scenario.assert,
    ...(calls !== undefined && { calls: Array.isArray(calls) ? calls.map(phase) : phase(calls) }),
    ...(typeof opens === 'object' && { breaker: { ...breaker, opens: scaled(opens, 'notBefore') } }),
  }
  return { ...scenario, faults, assert, duration: durationMs }
}
