import { z } from 'zod'
import { formatDuration } from '../../../units/duration.ts'
import { read, schemaOf, type Path } from './foreign.ts'

const ratio = (usual: number) => z.number().min(0).max(1).default(usual)
const ms = (usual: number) => z.number().min(0).default(usual)
const tools = z.array(z.string().min(1)).default([])

/** The fields of each type, under the names and with the defaults that mcp-chaos has for them. */
const schemas = {
  latency: z.strictObject({ added_ms: ms(250), jitter_ms: ms(0), probability: ratio(1) }),
  drop_tool: z.strictObject({ tools }),
  registry_inconsistency: z.strictObject({ tools }),
  schema_drift: z.strictObject({ tools, probability: ratio(1) }),
  partial_result: z.strictObject({ tools, probability: ratio(1) }),
  error_injection: z.strictObject({ rate: ratio(0.02), tools }),
  burst_error: z.strictObject({ rate: ratio(0.02), burst_len: z.int().min(1).default(8), tools }),
  server_degradation: z.strictObject({
    tools,
    episode_rate: ratio(0.08),
    episode_len: z.int().min(1).default(20),
  }),
} as const

type Type = keyof typeof schemas

/** The types of faults that mcp-chaos has. */
export const mcpChaosTypes: readonly string[] = Object.keys(schemas)

/** A fault of ours, without what is the same for all. */
export interface Meant {
  readonly what: { readonly type: string; readonly rate: number } & Readonly<Record<string, unknown>>
  /** Tools whose calls it hits: none means all. Undefined when it says itself which tools it is about. */
  readonly aimed?: readonly string[]
  /** Whether the tools that it hits fail together. */
  readonly together?: boolean
}

/** Reads one entry, and says what it means here; undefined when it means nothing. Throws `ForeignPlanError`. */
export function meaningOf(
  { type, ...fields }: Readonly<Record<string, unknown>>,
  path: Path,
): (Meant & { readonly type: string }) | undefined {
  const known = schemaOf(schemas, type, path)
  const meant = translate(known, fields, path)
  return meant && { type: known, ...meant }
}

function translate(type: Type, fields: unknown, path: Path): Meant | undefined {
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
      const when = { burst: { meanLength: burst_len } }
      return { what: { type: 'rpc.error', rate, when }, aimed: tools, together: true }
    }
    case 'server_degradation': {
      const { episode_rate, episode_len, tools } = as('server_degradation')
      const when = { burst: { meanLength: episode_len, per: 'intent' } }
      return { what: { type: 'rpc.error', rate: episode_rate, when }, aimed: tools, together: true }
    }
  }
}

/** No tools are none here, while they are all for the other types. */
const ofTools = (type: string, tools: readonly string[]): Meant | undefined =>
  tools.length === 0 ? undefined : { what: { type, rate: 1, tools } }

function delays(addedMs: number, jitterMs: number): object {
  const least = formatDuration(Math.round(addedMs))
  if (jitterMs === 0) return { kind: 'fixed', delay: least }
  return { kind: 'uniform', min: least, max: formatDuration(Math.round(addedMs + jitterMs)) }
}
