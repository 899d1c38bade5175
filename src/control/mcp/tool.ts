import { z } from 'zod'
import type { Agent, AgentRuns } from '../../approval/agent-runs.ts'
import type { Refusal } from '../../approval/refusal.ts'
import type { Controller } from '../../chaos/control/controller.ts'
import type { GuardedExperiments } from '../../experiments/guarded/guarded.ts'
import type { Spec } from '../../experiments/guarded/spec.ts'
import type { Clock } from '../../mesh/clock.ts'
import type { Live } from '../../mesh/live.ts'
import type { StateStore } from '../../mesh/policy.ts'
import type { GatewayGeneration } from '../../registry/generation.ts'
import type { Incidents } from '../../registry/health/incidents.ts'
import type { PlanLibrary } from './plans.ts'
import type { RunHistory } from './run-history.ts'
import type { Signals } from './signals.ts'
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

/** An answer of a tool: a sentence for the text, and the data for `structuredContent`. */
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

export const cursor = z
  .string()
  .regex(/^\d{1,9}$/, 'expected the `next` of an earlier answer')
  .optional()
  .describe('`next` of an earlier answer, for the rows after that answer.')

/** Returns the output schema of a table. */
export const tableOf = (row: z.ZodType) =>
  z.object({
    total: z.int().describe('All rows, of which this answer may have a part.'),
    next: z.string().optional().describe('The cursor of the next rows; absent at the end.'),
    rows: z.array(row),
  })

/** Returns as many rows from the cursor on as fit into an answer. */
export function tableAnswer(rows: readonly object[], from: string | undefined, text: string): Answer {
  const start = Number(from ?? 0)
  let bytes = OVERHEAD_BYTES + Buffer.byteLength(text)
  const fitting: object[] = []
  for (const row of rows.slice(start)) {
    bytes += Buffer.byteLength(JSON.stringify(row)) + 1
    if (bytes > MAX_ANSWER_BYTES && fitting.length > 0) break
    fitting.push(bytes > MAX_ANSWER_BYTES ? shortened(row) : row)
  }
  const end = start + fitting.length
  const next = end < rows.length ? String(end) : undefined
  return { ok: true, text, data: { total: rows.length, ...(next !== undefined && { next }), rows: fitting } }
}

/** Returns a row whose texts and lists are cut until the row fits into an answer. */
function shortened(row: object): object {
  const cut = (value: unknown): unknown => {
    if (typeof value === 'string') return value.slice(0, 200)
    return Array.isArray(value) ? value.slice(0, 8).map(cut) : value
  }
  return Object.fromEntries(Object.entries(row).map(([key, value]) => [key, cut(value)]))
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
  let length = Math.min(text.length - start, MAX_ANSWER_BYTES)
  const most = MAX_ANSWER_BYTES - OVERHEAD_BYTES - usedBytes
  while (length > 0 && Buffer.byteLength(JSON.stringify(text.slice(start, start + length))) > most)
    length = Math.floor(length * 0.9)
  const end = start + Math.max(0, length)
  return { total: text.length, ...(end < text.length && { next: String(end) }), part: text.slice(start, end) }
}
