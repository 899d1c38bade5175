import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { z } from 'zod'
import { parseSource } from '../config/files/document.ts'
import { Origins, type ConfigPath } from '../config/files/places.ts'
import { readText } from '../config/files/read-text.ts'
import { type Reading, readValues } from '../config/files/read-values.ts'
import { explain } from '../config/issues/explain.ts'
import { type ConfigIssue, formatIssue } from '../config/issues/issues.ts'
import { contract } from '../judge/contract.ts'
import type { KeyedRandom } from '../mesh/keyed-random.ts'
import { rate } from '../policies/rate-limit/limit.ts'
import { duration } from '../units/duration.ts'
import { suggest } from '../units/suggest.ts'
import { pathOf, referencesIn } from './references.ts'

const name = z
  .string()
  .regex(
    /^[A-Za-z0-9_][A-Za-z0-9_-]{0,39}$/,
    'expected a name: 1 to 40 of A-Z a-z 0-9 _ -, without - in front',
  )

const bound = z.int().min(-1e15).max(1e15)

const value = z
  .union([
    z.strictObject({
      draw: z
        .array(z.unknown())
        .min(1)
        .max(10_000)
        .describe('One entry of this list, each with the same probability.'),
    }),
    z.strictObject({ from: bound, to: bound.describe('A whole number from `from` to `to`, both included.') }),
  ])
  .describe('A value that is drawn once for each task, by seed and name of the task: `${values.NAME}`.')

const step = z.strictObject({
  server: name.optional().describe('Server of the tool. If absent, `tool` is the name on `/mcp`.'),
  tool: z.string().min(1).max(256).describe('Name of the tool at its server.'),
  arguments: z
    .record(z.string(), z.unknown())
    .default({})
    .describe('Arguments of the call, with references such as `${values.item}`.'),
  think: duration({ max: 3_600_000 }).default(0).describe('How long the agent thinks before it calls.'),
  needs: z
    .array(name)
    .max(100)
    .default([])
    .describe(
      'Names saved by earlier steps. If one of these steps fails, this step is skipped. Names in references are added by themselves.',
    ),
  save: name.optional().describe('Keeps the result under this name for later steps.'),
  expect: z
    .record(z.string(), z.unknown())
    .default({})
    .describe(
      'Values that the result must contain, by path, such as `structuredContent.status: placed`. Any other result is a wrong answer.',
    ),
})

const kind = z.strictObject({
  name: name.describe('Unique name of this kind of tasks, shown in the report.'),
  weight: z.number().gt(0).max(1e6).default(1).describe('Relative frequency of this kind of tasks.'),
  values: z.record(name, value).default({}),
  steps: z.array(step).min(1).max(100).describe('Calls, one after the other.'),
  succeeds: z
    .union([z.literal('every'), z.array(name).min(1).max(100)])
    .default('every')
    .describe(
      'Steps that must succeed for the task to succeed: every step, or the steps that saved these names.',
    ),
  contract: contract.optional().describe('By which `breakwater judge` judges agents with such tasks.'),
})

/** The schema of a workload file. */
export const workload = z
  .strictObject({
    name: name.describe('Prefix of the names of the tasks. All random draws depend on the names.'),
    arrivals: rate()
      .optional()
      .describe(
        'Tasks started per second (`10/s`), both arms together. Default: as fast as `--concurrency` allows.',
      ),
    patience: duration({ min: 1, max: 3_600_000 })
      .default(60_000)
      .describe('How long an agent waits for a call before it gives up.'),
    eras: z
      .array(z.enum(['legacy', 'modern']))
      .min(1)
      .max(2)
      .default(['legacy', 'modern'])
      .describe(
        'Protocol eras of the agents: `legacy` is 2025-11-25 with sessions, `modern` is 2026-07-28 without sessions. Drawn for each task.',
      ),
    tasks: z.array(kind).min(1).max(100).describe('Kinds of tasks.'),
  })
  .superRefine(({ tasks }, context) => {
    const refuse = (path: ConfigPath, message: string) =>
      context.addIssue({ code: 'custom', path: [...path], message })
    for (const [at, task] of tasks.entries()) {
      if (tasks.findIndex((other) => other.name === task.name) < at)
        refuse(['tasks', at, 'name'], `"${task.name}" is the name of another kind already`)
      for (const finding of findingsIn(task)) refuse(['tasks', at, ...finding.path], finding.message)
    }
  })

export type Workload = z.output<typeof workload>
export type TaskKind = Workload['tasks'][number]
export type Step = TaskKind['steps'][number]

interface Finding {
  readonly path: ConfigPath
  readonly message: string
}

/** Yields a finding for each invalid name or range in a kind of tasks. */
function* findingsIn({ values, steps, succeeds }: TaskKind): Iterable<Finding> {
  for (const [key, held] of Object.entries(values))
    if ('from' in held && held.from > held.to)
      yield { path: ['values', key, 'to'], message: `expected ${held.from} or more` }
  const drawn = Object.keys(values)
  const saved: string[] = []
  for (const [index, { arguments: args, expect, needs, save }] of steps.entries()) {
    const at: ConfigPath = ['steps', index]
    for (const [which, need] of needs.entries())
      if (!saved.includes(need)) yield { path: [...at, 'needs', which], message: noStep(need, saved) }
    for (const [key, within] of Object.entries({ arguments: args, expect }))
      for (const { path, reference, problem } of referencesIn(within, [...at, key])) {
        const [root, name] = reference
        if (problem !== undefined) yield { path, message: problem }
        else if (root === 'values' && !drawn.includes(String(name)))
          yield { path, message: `there is no value "${name}"${hint(String(name), drawn)}` }
        else if (root === 'steps' && !saved.includes(String(name)))
          yield { path, message: noStep(String(name), saved) }
      }
    for (const path of Object.keys(expect))
      if (pathOf(path) === undefined)
        yield { path: [...at, 'expect', path], message: 'is no path such as structuredContent.items[0].id' }
    if (save !== undefined && saved.includes(save))
      yield { path: [...at, 'save'], message: `an earlier step saved "${save}" already` }
    if (save !== undefined) saved.push(save)
  }
  if (succeeds === 'every') return
  for (const [index, name] of succeeds.entries())
    if (!saved.includes(name)) yield { path: ['succeeds', index], message: noStep(name, saved) }
}

const noStep = (name: string, saved: readonly string[]) =>
  `no earlier step saved "${name}"${hint(name, saved)}`

function hint(name: string, known: readonly string[]): string {
  if (known.length === 0) return ''
  const meant = suggest(name, known)
  return meant === undefined ? `; there are ${known.join(', ')}` : `; did you mean "${meant}"?`
}

/** A workload with the source position of each value, or the problems of its file. Each problem is one line. */
export type ReadWorkload =
  | { readonly ok: true; readonly workload: Workload; readonly origins: Origins }
  | { readonly ok: false; readonly problems: readonly string[] }

/** Returns the path of a workload file of the package; it works from the sources and from every build. */
export const shippedAt = (file: string): string =>
  join(
    dirname(createRequire(import.meta.url).resolve('breakwater/package.json')),
    'config',
    'workloads',
    file,
  )

/** Reads a workload from a YAML or JSON file. `${…}` is a workload reference, never an environment variable. */
export async function readWorkload(file: string): Promise<ReadWorkload> {
  const read = await readBy(file, () => workload)
  return read.ok ? { ok: true, workload: read.value, origins: read.origins } : read
}

/** A file's value with the source position of each part, or the problems of the file, a line each. */
export type ReadFile<Value> =
  | { readonly ok: true; readonly value: Value; readonly origins: Origins }
  | { readonly ok: false; readonly problems: readonly string[] }

/** Reads a YAML or JSON file by the schema that `schemaFor` returns for its value. Fills in no variables. */
export async function readBy<Value>(
  file: string,
  schemaFor: (held: unknown) => z.ZodType<Value>,
): Promise<ReadFile<Value>> {
  const read = await readText(file)
  if ('problem' in read) return { ok: false, problems: [`${file} ${read.problem}`] }
  const source = parseSource(file, read.text)
  const issues: ConfigIssue[] = source.problems.map(({ position, message }) => {
    return { severity: 'error', file, path: '', ...position, message }
  })
  const origins = new Origins()
  const reading: Reading = { env: {}, origins, issues, interpolated: new Set(), verbatim: true }
  const held = issues.length > 0 ? undefined : readValues(file, source, source.root, [], reading)
  const schema = schemaFor(held)
  const parsed = schema.safeParse(held, { error: () => '' })
  if (parsed.success && issues.length === 0) return { ok: true, value: parsed.data, origins }
  const found =
    issues.length > 0 ? issues : explain(parsed.error?.issues ?? [], { schema, value: held, origins })
  return { ok: false, problems: found.map(formatIssue) }
}

/** The available tools, by their exposed names. */
export interface KnownTools {
  /** The names of the tools on `/mcp`. */
  readonly listed: ReadonlySet<string>
  /** For each server, its tool names with the exposed names on `/mcp`. */
  readonly servers: ReadonlyMap<string, ReadonlyMap<string, string>>
}

/** Returns the exposed name of a step's tool on `/mcp`, or the problem with the step. */
export function exposedName({ server, tool }: Step, { listed, servers }: KnownTools): string | Finding {
  if (server === undefined) {
    if (listed.has(tool)) return tool
    return { path: ['tool'], message: `there is no tool "${tool}"${hint(tool, [...listed])}` }
  }
  const tools = servers.get(server)
  if (tools === undefined)
    return { path: ['server'], message: `there is no server "${server}"${hint(server, [...servers.keys()])}` }
  const exposed = tools.get(tool)
  if (exposed !== undefined && listed.has(exposed)) return exposed
  return { path: ['tool'], message: `${server} has no tool "${tool}"${hint(tool, [...tools.keys()])}` }
}

/** Returns the servers called by a workload. */
export function serversOf({ tasks }: Workload, tools: KnownTools): ReadonlySet<string> {
  const called = new Set(tasks.flatMap(({ steps }) => steps.map((step) => exposedName(step, tools))))
  const isCalled = (names: ReadonlyMap<string, string>) =>
    [...names.values()].some((name) => called.has(name))
  return new Set([...tools.servers].flatMap(([server, names]) => (isCalled(names) ? server : [])))
}

/** Returns a line for each unknown tool or server of a workload, with its place. */
export function unknownTools({ tasks }: Workload, origins: Origins, tools: KnownTools): string[] {
  return tasks.flatMap(({ steps }, at) =>
    steps.flatMap((step, index) => {
      const found = exposedName(step, tools)
      if (typeof found === 'string') return []
      const path = ['tasks', at, 'steps', index, ...found.path]
      const issue: ConfigIssue = {
        severity: 'error',
        path: '',
        message: found.message,
        ...origins.locate(path),
      }
      return formatIssue({ ...issue, path: `tasks[${at}].steps[${index}].${found.path.join('.')}` })
    }),
  )
}

/** Returns the kind of a task, drawn by weight. */
export function kindOf({ tasks }: Workload, task: string, random: KeyedRandom): TaskKind {
  const total = tasks.reduce((sum, { weight }) => sum + weight, 0)
  let left = random(task, 'kind') * total
  return tasks.find(({ weight }) => (left -= weight) < 0) ?? tasks.at(-1)!
}

/** Returns the random values of a task. They depend only on the task's name and the seed. */
export function valuesOf({ values }: TaskKind, task: string, random: KeyedRandom): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(values).map(([key, held]) => {
      const u = random(task, `value ${key}`)
      if ('draw' in held) return [key, held.draw[Math.floor(u * held.draw.length)]]
      return [key, held.from + Math.floor(u * (held.to - held.from + 1))]
    }),
  )
}
