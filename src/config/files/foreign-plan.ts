import { ForeignPlanError, fromChaosMonkey, fromMcpChaos, planFormat } from '../../chaos/plan/compat/index.ts'
import { isPlainMap } from '../schema/plain-map.ts'
import type { Path } from './path.ts'

/** How long faults of a plan without times stay armed, in milliseconds. */
const TTL_MS = 3_600_000

export interface Translated {
  readonly value: unknown
  /** Why the plan could not be read. */
  readonly problem?: { readonly path: Path; readonly message: string }
}

/** The config with a plan that was written for another tool, in the block `chaos`, in our own words. */
export function withOwnPlan(value: unknown): Translated {
  const chaos = isPlainMap(value) ? value.chaos : undefined
  if (!isPlainMap(value) || !isPlainMap(chaos)) return { value }
  const format = planFormat(chaos)
  if (format === 'own') return { value }
  const { faults: _, seed, ...rest } = chaos
  const options = { ttl: typeof chaos.maxTtl === 'number' ? chaos.maxTtl : TTL_MS, allowWrites: true }
  try {
    const plan =
      format === 'mcp-chaos'
        ? fromMcpChaos({ seed, faults: chaos.faults }, options)
        : {
            ...(seed === undefined ? {} : { seed }),
            faults: fromChaosMonkey({ faults: chaos.faults }, options),
          }
    return { value: { ...value, chaos: { ...rest, ...plan } } }
  } catch (error) {
    if (!(error instanceof ForeignPlanError)) throw error
    return { value, problem: { path: ['chaos', ...error.path], message: error.message } }
  }
}
