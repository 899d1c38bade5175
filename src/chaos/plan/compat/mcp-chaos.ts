import { z } from 'zod'
import type { Seed } from '../../../mesh/keyed-random.ts'
import { formatDuration } from '../../../units/duration.ts'
import { seed } from '../seed.ts'
import { read, schemaOf, type PlanPath, commonOf, type FaultConfig, type ForeignOptions } from './foreign.ts'

const ratio = (usual: number) => z.number().min(0).max(1).default(usual)
const ms = (usual: number) => z.number().min(0).default(usual)
const tools = z
  .array(z.string().min(1))
  .transform((names) => [...new Set(names)])
  .default([])

/** A mean number of steps; less than 1 counts as 1. */
const meanLength = (usual: number) =>
  z
    .number()
    .transform((length) => Math.max(1, length))
    .default(usual)

/** The fields of each type, with the names and defaults of mcp-chaos. */
const schemas = {
  latency: z.strictObject({ added_ms: ms(250), jitter_ms: ms(0), probability: ratio(1) }),
  drop_tool: z.strictObject({ tools }),
  registry_inconsistency: z.strictObject({ tools }),
  schema_drift: z.strictObject({ tools, probability: ratio(1) }),
  partial_result: z.strictObject({ tools, probability: ratio(1) }),
  error_injection: z.strictObject({ rate: ratio(0.02), tools }),
  burst_error: z.strictObject({ rate: ratio(0.02), burst_len: meanLength(8), tools }),
  server_degradation: z.strictObject({
    tools,
    episode_rate: ratio(0.08),
    episode_len: meanLength(20),
  }),
} as const

type Type = keyof typeof schemas

/** The fault types of mcp-chaos. */
export const mcpChaosTypes: readonly string[] = Object.keys(schemas)

/** A fault in our format, without the common fields. */
interface Meant {
  readonly what: { readonly type: string; readonly rate: number } & Readonly<Record<string, unknown>>
  /** Tools whose calls the fault hits; empty means all. Undefined when the fault names its tools itself. */
  readonly aimed?: readonly string[]
  /** True when all tools of the fault fail at the same time. */
  readonly together?: boolean
}

/** Translates an entry into our format. Returns undefined when the entry has no effect. Throws `ForeignPlanError`. */
function meaningOf(
  { type, ...fields }: Readonly<Record<string, unknown>>,
  path: PlanPath,
): (Meant & { readonly type: string }) | undefined {
  const known = schemaOf(schemas, type, path)
  const meant = translate(known, fields, path)
  return meant && { type: known, ...meant }
}

function translate(type: Type, fields: unknown, path: PlanPath): Meant | undefined {
  const as = <Name extends Type>(name: Name) => read(schemas[name], fields, path, name)
  switch (type) {
    case 'latency': {
      const { added_ms, jitter_ms, probability } = as('latency')
      const distribution = delays(added_ms, jitter_ms)
      return { what: { type: 'conn.latency', rate: probability, distribution }, aimed: [] }
    }
    case 'drop_tool':
      return ofTools('registry.tool_missing', as('drop_tool').tools)
    case 'registry_inconsistency':
      return ofTools('registry.ghost_tool', as('registry_inconsistency').tools)
    case 'schema_drift': {
      const { probability, tools } = as('schema_drift')
      return { what: { type: 'result.drift', rate: probability, operators: 'auto' }, aimed: tools }
    }
    case 'partial_result': {
      const { probability, tools } = as('partial_result')
      return { what: { type: 'result.partial', rate: probability, operators: 'auto' }, aimed: tools }
    }
    case 'error_injection': {
      const { rate, tools } = as('error_injection')
      return { what: { type: 'rpc.error', rate }, aimed: tools }
    }
    case 'burst_error': {
      const { rate, burst_len, tools } = as('burst_error')
      const when = { burst: { meanLength: burst_len, per: 'call' } }
      return { what: { type: 'rpc.error', rate, when }, aimed: tools, together: true }
    }
    case 'server_degradation': {
      const { episode_rate, episode_len, tools } = as('server_degradation')
      // The tools identify the degraded server: without tools, no server is degraded.
      if (tools.length === 0) return undefined
      const when = { burst: { meanLength: episode_len, per: 'intent' } }
      return { what: { type: 'rpc.error', rate: episode_rate, when }, aimed: tools, together: true }
    }
  }
}

/**
 * Returns a fault of the listed tools; undefined for an empty list. For other types, an empty list means every tool.
 */
const ofTools = (type: string, tools: readonly string[]): Meant | undefined =>
  tools.length === 0 ? undefined : { what: { type, rate: 1, tools } }

function delays(addedMs: number, jitterMs: number): object {
  const least = formatDuration(Math.round(addedMs))
  if (jitterMs === 0) return { kind: 'fixed', delay: least }
  return { kind: 'uniform', min: least, max: formatDuration(Math.round(addedMs + jitterMs)) }
}

const planSchema = z.strictObject({
  seed: seed().default(0),
  faults: z.array(z.record(z.string(), z.unknown())).default([]),
})

/** The parts of our plan that replace a plan of mcp-chaos. */
export interface ForeignPlan {
  readonly seed: Seed
  readonly faults: readonly FaultConfig[]
}

/**
 * Returns the faults of a plan of mcp-chaos, named after their type and place. A fault aimed at several tools becomes a
 * fault per tool, in a failure domain when the tools fail together. Faults without any effect are left out. Throws
 * `ForeignPlanError`.
 */
export function fromMcpChaos(plan: unknown, options: ForeignOptions): ForeignPlan {
  // An empty file is a plan without faults.
  const { seed, faults } = read(planSchema, plan ?? {}, [], 'a plan of mcp-chaos')
  return { seed, faults: faults.flatMap((entry, index) => translated(entry, index, options)) }
}

function translated(
  entry: Readonly<Record<string, unknown>>,
  index: number,
  options: ForeignOptions,
): FaultConfig[] {
  const meant = meaningOf(entry, ['faults', index])
  if (meant === undefined) return []
  const { type, what, aimed, together } = meant
  const name = `${type}-${index + 1}`
  const common = commonOf(options)
  if (aimed === undefined) return [{ name, ...what, ...common }]
  // Faults of mcp-chaos hit only tool calls, but some of our faults hit all requests.
  if (aimed.length === 0) return [{ name, ...what, match: { method: 'tools/call' }, ...common }]
  if (aimed.length === 1) return [{ name, ...what, match: { tool: aimed[0] }, ...common }]
  const domain = together === true ? { domain: name } : {}
  return aimed.map((tool, at) => ({
    name: `${name}-${at + 1}`,
    ...what,
    match: { tool },
    ...domain,
    ...common,
  }))
}
