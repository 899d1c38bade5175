import { faults as types } from '../../chaos/faults/index.ts'
import { targetFindings, type PlanTargets } from '../../chaos/plan/checks.ts'
import {
  aliasesIn,
  ForeignPlanError,
  fromChaosMonkey,
  fromMcpChaos,
  planFormat,
} from '../../chaos/plan/compat/index.ts'
import { chaos, type ChaosConfig } from '../../chaos/plan/schema.ts'
import { formatPath } from '../../config/files/places.ts'
import { isObject } from '../../protocol/jsonrpc.ts'
import { read, unreadable, type Read } from '../answers.ts'

export type Plan = Pick<ChaosConfig, 'seed' | 'mode' | 'faults'>

/** The keys of a plan. All other keys of the block `chaos` belong to the config only. */
const keys = ['seed', 'mode', 'aliases', 'faults']

/**
 * Reads a plan: `{seed?, mode?, faults}`, or the format of one of two other tools. Missing parts get their defaults,
 * not the values in force before.
 *
 * `config`: the longest `ttl`, in milliseconds, and aliases of foreign targets. `targets`: the available targets, when
 * known.
 */
export function readPlan(
  body: unknown,
  config: Pick<ChaosConfig, 'maxTtl' | 'aliases'>,
  targets?: PlanTargets,
): Read<Plan> {
  const { maxTtl } = config
  const own = inOwnWords(body, config, targets)
  if (!own.ok) return own
  const strange = Object.keys(own.value).filter((key) => !keys.includes(key))
  if (strange.length > 0) {
    const message = `is not a key of a plan; the keys are ${keys.join(', ')}`
    return unreadable(
      'the plan',
      strange.map((path) => ({ path, message })),
    )
  }
  if (own.value.faults === undefined) {
    return unreadable('the plan', [{ path: 'faults', message: 'missing; expected a list of faults' }])
  }
  const plan = read(chaos, { ...own.value, maxTtl }, 'the plan')
  if (!plan.ok || targets === undefined) return plan
  const findings = targetFindings(plan.value.faults, targets, types)
    .filter(({ severity }) => severity === 'error')
    .map(({ path, message }) => ({ path: formatPath(path), message }))
  return findings.length > 0 ? unreadable('the plan', findings) : plan
}

/**
 * Returns a plan in our format; converts a plan of another tool. Neither tool has `mode` and `aliases`, so a plan of
 * theirs may add our keys.
 */
function inOwnWords(
  body: unknown,
  { maxTtl, aliases: known }: Pick<ChaosConfig, 'maxTtl' | 'aliases'>,
  targets: PlanTargets | undefined,
): Read<Readonly<Record<string, unknown>>> {
  const format = planFormat(body)
  if (format === 'own') {
    if (isObject(body)) return { ok: true, value: body }
    const message = 'expected a plan: {"faults": [ … ]}'
    return unreadable('the plan', [{ path: '', message }])
  }
  // In a plan of another tool, faults hit any matching target, even tools that may write, and last for `chaos.maxTtl`.
  const { mode, aliases, ...rest }: Record<string, unknown> = isObject(body) ? body : {}
  const beside = { ...(mode === undefined ? {} : { mode }), ...(aliases === undefined ? {} : { aliases }) }
  const options = {
    ttl: maxTtl,
    allowWrites: true,
    aliases: { ...known, ...aliasesIn(aliases) },
    ...(targets && { servers: targets.servers.map(({ name }) => name) }),
  }
  try {
    if (format === 'mcp-chaos') return { ok: true, value: { ...beside, ...fromMcpChaos(rest, options) } }
    const { seed, ...scenario } = rest
    const faults = fromChaosMonkey(Array.isArray(body) ? body : scenario, options)
    return { ok: true, value: { ...beside, ...(seed === undefined ? {} : { seed }), faults } }
  } catch (error) {
    if (!(error instanceof ForeignPlanError)) throw error
    return unreadable('the plan', [{ path: formatPath(error.path), message: error.problem }])
  }
}
