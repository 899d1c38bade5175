import { z } from 'zod'
import { commonOf, read, type FaultConfig, type ForeignOptions } from './foreign.ts'
import { meaningOf } from './mcp-chaos-types.ts'

const planSchema = z.strictObject({
  seed: z.int().default(0),
  faults: z.array(z.record(z.string(), z.unknown())).default([]),
})

/** What a plan of ours says in place of one of theirs. */
export interface ForeignPlan {
  readonly seed: number
  readonly faults: readonly FaultConfig[]
}

/**
 * The faults of a plan of mcp-chaos, named after their type and place. One that is aimed at several tools becomes one
 * for each of them, in a failure domain where these fail together; one that does nothing is left out. Throws
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
  // Their faults hit tool calls only, some of ours hit all requests.
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
