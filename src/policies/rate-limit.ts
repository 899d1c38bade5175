import { z } from 'zod'
import type { Layer } from '../mesh/call.ts'
import { DEFAULT_SET } from '../mesh/settings.ts'
import { gatewayError } from '../mesh/errors.ts'
import type { PolicyContext, Policy, Scope } from '../mesh/policy.ts'
import { duration } from '../units/duration.ts'
import {
  formatRate,
  KeyedLimit,
  type Limit,
  perSecond,
  rate,
  SharedLimit,
  type Rate,
} from './rate-limit/limit.ts'
import { Grants, type Quota, type QuotaSettings } from './rate-limit/quota.ts'
import { StatesBySettings, indivisible, partOf } from './state/states-by-settings.ts'

const quota = z
  .strictObject({
    calls: z.int().min(1).max(100_000).describe('How many calls the server grants.'),
    per: duration({ min: 1 }).describe(
      'The span of the quota. The quota holds for every span of this length at the server: a call counts from its sending.',
    ),
    minTime: duration().default(0).describe('Shortest time between the starts of two calls.'),
    queue: z.int().min(0).max(10_000).describe('How many calls may wait for their turn; 0: none.'),
    maxWait: duration({ min: 1 })
      .default(10_000)
      .describe('How long a call waits at most. A call that would wait longer is rejected at once.'),
  })
  .describe(
    'A quota granted by contract: calls beyond the quota wait for their turn. A reload keeps the count of earlier calls, whatever has changed.',
  )

export const schema = z
  .strictObject({
    rate: rate()
      .optional()
      .describe(
        'Most calls in the long run: 100/s, 60/m, 1000/h, or a number of calls per second. Default: 100/s, or none where a quota is given.',
      ),
    burst: z
      .int()
      .min(1)
      .max(1_000_000)
      .optional()
      .describe(
        'How many calls may come at once after a pause. Default: the calls of one second, at least 1.',
      ),
    per: z
      .enum(['server', 'tool', 'tenant'])
      .default('server')
      .describe(
        'The calls that share the rate: all calls of a server, of a tool, or of a tenant. All new tenant names count as one tenant.',
      ),
    quota: quota.optional(),
  })
  .superRefine(({ rate, burst, quota }, context) => {
    if (burst === undefined || rate !== undefined || quota === undefined) return
    const message = 'burst needs a rate: a quota has none'
    context.addIssue({ code: 'custom', path: ['burst'], message })
  })
  .describe('Limits how fast calls go to a server.')

type Config = z.output<typeof schema>

/** The rate when the config names neither a rate nor a quota. */
const DEFAULT_RATE: Rate = { calls: 100, perMs: 1_000 }

/** Returns the rate; undefined when the config has only a quota. */
const rateOf = ({ rate, quota }: Config): Rate | undefined =>
  rate ?? (quota === undefined ? DEFAULT_RATE : undefined)

const burstOf = ({ burst }: Config, rate: Rate): number => burst ?? Math.max(1, Math.floor(perSecond(rate)))

const RATE_LIMIT = 'rate-limit'
const QUOTA = 'rate-limit-quota'

/** Describes in words the calls sharing a limit. */
function whose(per: Config['per'], { server, tool }: Scope): string {
  if (per === 'server') return server
  if (per === 'tenant') return `one tenant of ${server}`
  return tool === undefined ? `requests to ${server} that are for no listed tool` : `${tool} of ${server}`
}

function limitFor(
  config: Config,
  rate: Rate,
  { clock, state }: PolicyContext,
  { set, server, tool }: Scope,
): Limit {
  const { per } = config
  const settings = { rate, burst: burstOf(config, rate) }
  const create = () => new SharedLimit(settings, clock)
  if (per === 'tool' && tool !== undefined)
    return state.get({ kind: RATE_LIMIT, set, server, tool, config: settings }, create)
  const limits = state.get({ kind: RATE_LIMIT, set, server }, () => new StatesBySettings<Limit>())
  return limits.get({ per, ...settings }, per === 'tenant' ? () => new KeyedLimit(settings, clock) : create)
}

/** Returns the quota, which all policy sets share, because the contract covers all calls to the server. */
function quotaFor(settings: QuotaSettings, { clock, state }: PolicyContext, server: string): Quota {
  return state.get({ kind: QUOTA, set: DEFAULT_SET, server }, () => new Grants(server, clock)).quota(settings)
}

/** Rejects calls beyond a token bucket's rate, or queues calls when an upstream grants a quota. */
export const rateLimit: Policy<Config> & { schema: typeof schema } = {
  schema,
  use: 'Use `rate` to protect a server from agents that call too fast, and `quota` for a contract with a limit, where calls should wait instead of failing. Against few but slow calls use `bulkhead`.',
  optIn: true,
  states: [
    { kind: RATE_LIMIT, isBudget: true },
    { kind: QUOTA, isBudget: true },
  ],
  indivisible: (config, shares) => {
    const rate = rateOf(config)
    return rate && indivisible('calls after a pause', burstOf(config, rate), shares)
  },
  // A quota is not divided: all policy sets share the quota.
  divided: (config, share) => {
    const rate = rateOf(config)
    if (rate === undefined) return config
    const burst = partOf(burstOf(config, rate), share)
    return { ...config, rate: { ...rate, calls: Number((rate.calls * share).toPrecision(6)) }, burst }
  },
  build(config, context, scope): Layer {
    const quota = config.quota && quotaFor(config.quota, context, scope.server)
    const rate = rateOf(config)
    const within: Layer = (next) => (quota === undefined ? next : (call) => quota.run(call, next))
    if (rate === undefined) return within
    const limit = limitFor(config, rate, context, scope)
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
