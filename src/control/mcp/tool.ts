import { z } from 'zod'
import type { Agent } from '../../approval/agent.ts'
import type { AgentRuns } from '../../approval/agent-runs.ts'
import type { Refusal } from '../../approval/refusal.ts'
import type { Controller } from '../../chaos/control/controller.ts'
import type { GuardedExperiments } from '../../experiments/guarded/guarded.ts'
import type { Spec } from '../../experiments/guarded/spec.ts'
import type { Clock } from '../../mesh/clock.ts'
import type { Live } from '../../mesh/live.ts'
import type { StateStore } from '../../mesh/policy.ts'
import type { GatewayGeneration } from '../../registry/generation.ts'
import type { Incidents } from '../../registry/health/incidents.ts'
import type { AgentGameDays } from './agent-gamedays.ts'
import type { PlanLibrary } from './plans.ts'
import type { RunHistory } from './run-history.ts'
import type { Signals } from './signals.ts'
import { TOON_VERSION, toonOf } from './toon.ts'
import type { RecentTraffic } from './traffic.ts'

/** The parts of the gateway that tools read and order. */
export interface Operations {
  readonly clock: Clock
  readonly live: Pick<Live<GatewayGeneration>, 'current'>
  readonly state: StateStore
  readonly chaos: Controller
  readonly incidents: Pick<Incidents, 'list' | 'open'>
  readonly guarded: Pick<GuardedExperiments, 'plan' | 'list' | 'get' | 'running'>
  readonly agentRuns: AgentRuns
  readonly gameDays: AgentGameDays
  readonly history: RunHistory
  readonly plans: PlanLibrary
  readonly traffic: RecentTraffic
  readonly signals: Signals
  /** The schema of an experiment. */
  readonly spec: z.ZodType<Spec>
}

export interface ToolContext {
  readonly agent: Agent
  readonly operations: Operations
  /** Aborts when the agent cancels the call or leaves. */
  readonly signal: AbortSignal
  /** Sends a progress notification, if the agent asked for progress. */
  progress(done: number, total: number, message: string): Promise<void>
}

/** An answer of a tool: a sentence for the text, and the data for `structuredContent`. Rows in TOON are in the text. */
export interface Answer {
  readonly ok: true
  readonly text: string
  readonly data: Readonly<Record<string, unknown>>
}

export type Answered = Answer | Refusal

/** A tool of the control MCP server. */
export interface ControlTool {
  readonly name: string
  readonly title: string
  readonly description: string
  /** `read`: changes nothing. `write`: needs a credential with `tools: write`. `stop`: changes, but any credential may. */
  readonly access: 'read' | 'write' | 'stop'
  readonly isDestructive?: boolean
  readonly isIdempotent?: boolean
  readonly input: z.ZodObject
  readonly output: z.ZodObject
  run(args: never, context: ToolContext): Answered | Promise<Answered>
}

/** Defines a tool whose `run` gets arguments of its input schema. */
export const defineTool = <Input extends z.ZodObject>(
  tool: Omit<ControlTool, 'input' | 'run'> & {
    readonly input: Input
    run(args: z.output<Input>, context: ToolContext): Answered | Promise<Answered>
  },
): ControlTool => tool

/** Largest answer in bytes of UTF-8, text and data together: clients cut off longer answers. */
export const MAX_ANSWER_BYTES = 8_000

/** Bytes for everything beside the rows of a table or the text of a page. */
const OVERHEAD_BYTES = 600

/** Largest data of an answer in bytes. */
const MAX_DATA_BYTES = MAX_ANSWER_BYTES - OVERHEAD_BYTES

/** Most trials to fill an answer in TOON. */
const MAX_LOOKS = 4

/** Bytes of at least one part of a page, so that each page brings the reader further. */
const LEAST_PART_BYTES = 1_000

export const cursor = z
  .string()
  .regex(/^\d{1,9}$/, 'expected the `next` of an earlier answer')
  .optional()
  .describe('`next` of an earlier answer, for the rows after that answer.')

/** The arguments of tools with tables. */
export const pageArguments = {
  cursor,
  format: z
    .enum(['json', 'toon'])
    .default('json')
    .describe('`toon`: rows stand as TOON in the text, with fewer tokens; numbers are rounded.'),
}

/** The asked part of a table, and its format. */
export interface PageArguments {
  readonly cursor?: string | undefined
  readonly format: 'json' | 'toon'
}

/** Tells that `bounded` cut lists or texts. */
export const cutMark = z
  .literal(true)
  .optional()
  .describe('Lists and texts are cut, because all is too long.')

/** Returns the output schema of a table. */
export const tableOf = (row: z.ZodType) =>
  z.object({
    total: z.int().describe('All rows, of which this answer may have a part.'),
    next: z.string().optional().describe('The cursor of the next rows; absent at the end.'),
    rows: z.array(row).optional().describe('Absent with `format: toon`.'),
  })

/** Returns the bytes of a value as JSON. */
export const bytesOf = (value: unknown): number => Buffer.byteLength(JSON.stringify(value))

/**
 * Returns as many rows from the cursor on as fit into an answer. In TOON, the rows stand in the text, below the sentence,
 * and each value of the column `by` gets a table of its own.
 */
export function tableAnswer(
  rows: readonly object[],
  { cursor, format }: PageArguments,
  text: string,
  by?: string,
): Answer {
  const start = Number(cursor ?? 0)
  const left = rows.slice(start)
  const inToon = (some: readonly object[]) => `${text} TOON ${TOON_VERSION}:\n${toonOf(some, by)}`
  const fitting =
    format === 'toon' ? fittingToon(left, inToon) : fittingJson(left, MAX_DATA_BYTES - bytesOf(text))
  const end = start + fitting.length
  const page = { total: rows.length, ...(end < rows.length && { next: String(end) }) }
  if (format === 'toon') return { ok: true, text: inToon(fitting), data: page }
  return { ok: true, text, data: { ...page, rows: fitting } }
}

/** Returns the first rows of together at most `most` bytes as JSON, and at least one row. */
function fittingJson(rows: readonly object[], most: number): readonly object[] {
  let bytes = 0
  const fitting: object[] = []
  for (const row of rows) {
    const short = bounded(row, most)
    bytes += bytesOf(short) + 1
    if (bytes > most && fitting.length > 0) break
    fitting.push(short)
  }
  return fitting
}

/** Returns the first rows that fit into an answer in TOON, and at least one row. */
function fittingToon(
  rows: readonly object[],
  inToon: (some: readonly object[]) => string,
): readonly object[] {
  const bytes = (some: readonly object[]) => bytesOf(inToon(some))
  let fits = 0
  let tooMany = rows.length + 1
  let tried = fittingJson(rows, MAX_DATA_BYTES).length
  // Each look costs milliseconds. The size grows nearly in step with the rows, so a few looks find a full page.
  for (let looks = 0; looks < MAX_LOOKS && tooMany - fits > 1; looks++) {
    const size = bytes(rows.slice(0, tried))
    if (size <= MAX_DATA_BYTES) fits = tried
    else tooMany = tried
    tried = Math.max(fits + 1, Math.min(tooMany - 1, Math.floor((tried * MAX_DATA_BYTES) / size)))
  }
  if (fits > 0 || rows.length === 0) return rows.slice(0, fits)
  return [bounded(rows[0]!, MAX_DATA_BYTES, (row) => bytes([row]))]
}

/** Longest lists and texts of cut data, one step after the other. No id or hash is longer than the shortest texts. */
const cuts = [
  [32, 1_000],
  [16, 400],
  [8, 200],
  [4, 100],
  [2, 80],
  [1, 80],
  [0, 80],
] as const

/** Returns data of at most `most` bytes: as given, or with `cut: true` and each list and text cut until all fits. */
export function bounded<Data extends object>(
  data: Data,
  most = MAX_DATA_BYTES,
  measure: (data: Data) => number = bytesOf,
): Data & { cut?: true } {
  if (measure(data) <= most) return data
  let short = data
  for (const [items, characters] of cuts) {
    short = { ...(shortened(data, items, characters) as Data), cut: true }
    if (measure(short) <= most) break
  }
  return short
}

function shortened(value: unknown, items: number, characters: number): unknown {
  if (typeof value === 'string') return cutAt(value, characters)
  if (Array.isArray(value)) return value.slice(0, items).map((item) => shortened(item, items, characters))
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(
    Object.entries(value).map(([key, inner]) => [key, shortened(inner, items, characters)]),
  )
}

/** Returns at most `length` UTF-16 units of a text, and no half of a surrogate pair at the end. */
function cutAt(text: string, length: number): string {
  if (text.length <= length) return text
  const last = text.charCodeAt(length - 1)
  return text.slice(0, last >= 0xd800 && last <= 0xdbff ? length - 1 : length)
}

/** Returns the start of a text that measures at most `most` bytes by `measure`. */
export function startOf(text: string, most: number, measure: (part: string) => number = bytesOf): string {
  let part = cutAt(text, most)
  while (part !== '' && measure(part) > most) part = cutAt(part, Math.floor(part.length * 0.9))
  return part
}

/** The output schema of a part of a long text. */
export const pageShape = {
  total: z.int().describe('Characters of the whole text.'),
  next: z.string().optional().describe('The cursor of the next part; absent at the end.'),
  part: z.string(),
}

/** Returns the part of a long text that fits into an answer. */
export function pageOf(
  text: string,
  from: string | undefined,
  usedBytes = 0,
): { total: number; next?: string; part: string } {
  const start = Number(from ?? 0)
  const part = startOf(text.slice(start), Math.max(LEAST_PART_BYTES, MAX_DATA_BYTES - usedBytes))
  const end = start + part.length
  return { total: text.length, ...(end < text.length && { next: String(end) }), part }
}
