import type { z } from 'zod'
import type { Layer } from '../mesh/call.ts'
import { DEFAULT_SET } from '../mesh/compile.ts'
import { gatewayError } from '../mesh/errors.ts'
import type { Kit, Policy, Scope } from '../mesh/policy.ts'
import { SharedLimit, KeyedLimit, type Limit } from './rate-limit/limit.ts'
import { Quota, type QuotaSettings } from './rate-limit/quota.ts'
import { formatRate, perSecond } from './rate-limit/rate.ts'
import { schema } from './rate-limit/schema.ts'
import { Kept } from './state/kept.ts'
import type { Rate } from './state/token-bucket.ts'

type Config = z.output<typeof schema>

/** The rate when the config names neither a rate nor a quota. */
const DEFAULT_RATE: Rate = { calls: 100, perMs: 1_000 }

/** Whose calls share a limit, in words. */
function whose(per: Config['per'], { server, tool }: Scope): string {
  if (per === 'server') return server
  if (per === 'tenant') return `one tenant of ${server}`
  return tool === undefined ? `requests to ${server} that are for no listed tool` : `${tool} of ${server}`
}

function limitFor(config: Config, rate: Rate, { clock, state }: Kit, { set, server, tool }: Scope): Limit {
  const { per, burst = Math.max(1, Math.floor(perSecond(rate))) } = config
  const settings = { rate, burst }
  const create = () => new SharedLimit(settings, clock)
  if (per === 'tool' && tool !== undefined)
    return state.get({ kind: 'rate-limit', set, server, tool, config: settings }, create)
  const limits = state.get({ kind: 'rate-limit', set, server }, () => new Kept<Limit>())
  return limits.get({ per, ...settings }, per === 'tenant' ? () => new KeyedLimit(settings, clock) : create)
}

/** A contract knows nothing of policy sets: all of them draw on one quota. */
function quotaFor(settings: QuotaSettings, { clock, state }: Kit, server: string): Quota {
  const quotas = state.get({ kind: 'rate-limit-quota', set: DEFAULT_SET, server }, () => new Kept<Quota>())
  return quotas.get(settings, () => new Quota(server, settings, clock))
}

/** Rejects what comes faster than a token bucket fills, or makes it wait where an upstream grants a quota. */
export const rateLimit: Policy<Config> & { schema: typeof schema } = {
  schema,
  optIn: true,
  build(config, kit, scope): Layer {
    const quota = config.quota && quotaFor(config.quota, kit, scope.server)
    const rate = config.rate ?? (quota === undefined ? DEFAULT_RATE : undefined)
    const within: Layer = (next) => (quota === undefined ? next : (call) => quota.run(call, next))
    if (rate === undefined) return within
    const limit = limitFor(config, rate, kit, scope)
    const message = `rate limit of ${formatRate(rate)} for ${whose(config.per, scope)} exceeded`
    return (next) => {
      const passed = within(next)
      return (call) => {
        const waitMs = limit.take(call.countsAs)
        if (waitMs === 0) return passed(call)
        const error = gatewayError('rate_limited', message, { retryAfterMs: Math.ceil(waitMs) })
        return Promise.resolve({ kind: 'rejected', error, by: 'rateLimit' })
      }
    }
  },
}
