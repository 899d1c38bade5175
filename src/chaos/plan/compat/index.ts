import { isObject } from '../../../protocol/jsonrpc.ts'
import { chaosMonkeyTypes } from './chaos-monkey.ts'
import { mcpChaosTypes } from './mcp-chaos.ts'

export { fromChaosMonkey } from './chaos-monkey.ts'
export { ForeignPlanError, type FaultConfig, type ForeignOptions } from './foreign.ts'
export { fromMcpChaos, type ForeignPlan } from './mcp-chaos.ts'
export { aliasesIn, partsOf, targetsOf } from './targets.ts'

/** The format of a plan. */
type PlanFormat = 'own' | 'mcp-chaos' | 'chaos-monkey'

/** Required fields of our faults, unknown to both other formats. */
const ours = ['name', 'ttl']

/**
 * Returns the format of a plan, by its first fault with a clear format. Our faults have a name and a ttl; faults of
 * mcp-chaos-monkey have a target and a config, or a type and fields of this format only. Without a clear format, the
 * plan counts as ours.
 */
export function planFormat(value: unknown): PlanFormat {
  const entries = entriesOf(value)
  for (const entry of entries) {
    const format = isObject(entry) ? formatOf(entry) : undefined
    if (format !== undefined) return format
  }
  return 'own'
}

function entriesOf(value: unknown): readonly unknown[] {
  if (Array.isArray(value)) return value
  if (!isObject(value)) return []
  return Array.isArray(value.faults) ? value.faults : [value]
}

function formatOf(entry: Readonly<Record<string, unknown>>): PlanFormat | undefined {
  if (ours.some((key) => key in entry)) return 'own'
  if ('config' in entry || 'target' in entry) return 'chaos-monkey'
  const { type } = entry
  if (typeof type !== 'string') return undefined
  if (type.includes('.')) return 'own'
  // Both formats have a type `latency`, but only mcp-chaos-monkey has a field `delayMs`.
  if (type === 'latency') return 'delayMs' in entry || 'delay_ms' in entry ? 'chaos-monkey' : 'mcp-chaos'
  if (mcpChaosTypes.includes(type)) return 'mcp-chaos'
  return chaosMonkeyTypes.includes(type) ? 'chaos-monkey' : undefined
}
