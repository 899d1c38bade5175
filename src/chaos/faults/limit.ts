import { z } from 'zod'
import type { Call } from '../../mesh/call.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { duration } from '../../units/duration.ts'
import type { FaultType, Injection } from '../fault.ts'
import { NO_STATUS, speaksHttp, errorBody, json, requests } from './shared.ts'

const schema = z.strictObject({
  retryAfter: duration().default(1_000).describe('When to retry; sent in whole seconds, rounded up.'),
  form: z
    .enum(['seconds', 'date', 'absent', 'absurd'])
    .default('seconds')
    .describe('The form of Retry-After: seconds, a date, none at all, or ten years.'),
  perSecond: z
    .int()
    .min(1)
    .max(1_000_000)
    .optional()
    .describe('How many of the hit calls pass, per second and server; by default no call.'),
})

type Config = z.output<typeof schema>

const TEN_YEARS_S = 315_360_000

/** Imitates a server, or a proxy before the server, that refuses calls above a limit without reading them. */
const tooMany: FaultType<Config> = {
  schema,
  family: 'limit',
  about: 'HTTP 429: too many calls.',
  use: 'To test how callers respect quotas, and the effect of absurd values of Retry-After.',
  seen: 'Nothing when a retry succeeds, or an error with the time to retry.',
  containedBy: {
    policies: ['retry', 'rateLimit'],
    how: 'retry waits as long as the server says, and a rate limit of the gateway stays below the quota.',
  },
  methods: requests,
  sides: ['upstream', 'client'],
  transports: { only: ['http', 'sse'], otherwise: NO_STATUS },
  runsAsAsked: true,
  aliases: { 'chaos-monkey': ['rate-limit'] },
  example: {
    name: 'quota',
    rate: 0.1,
    ttl: '10m',
    match: { server: 'search' },
    retryAfter: '2s',
    form: 'seconds',
  },
  layer(config, injection) {
    return (next) => (call) => {
      const why = speaksHttp(call, injection) ? undefined : NO_STATUS
      const pass =
        why ?? (isWithin(config, call, injection) ? `within ${config.perSecond} calls a second` : undefined)
      if (pass !== undefined) {
        injection.notApplicable(pass)
        return next(call)
      }
      const told = retryAfter(config, injection.clock)
      injection.note({ status: 429, retryAfter: told ?? 'absent' })
      const reply = json(errorBody('null', { code: -32000, message: 'Too many requests' }), 429)
      const headers = told === undefined ? reply.headers : { ...reply.headers, 'retry-after': told }
      return Promise.resolve(injection.reply(call, { ...reply, headers }))
    }
  },
}

function isWithin({ perSecond }: Config, { server }: Call, injection: Injection): boolean {
  if (perSecond === undefined) return false
  const second = Math.floor(injection.clock.now() / 1_000)
  const window = injection.memory(server, () => ({ second, passed: 0 }))
  if (window.second !== second) Object.assign(window, { second, passed: 0 })
  if (window.passed >= perSecond) return false
  window.passed++
  return true
}

/** Returns the value of the header Retry-After (RFC 9110, section 10.2.3); undefined for none. */
function retryAfter({ form, retryAfter: ms }: Config, clock: Pick<Clock, 'wall'>): string | undefined {
  switch (form) {
    case 'seconds':
      return String(Math.ceil(ms / 1_000))
    case 'date':
      return new Date(wholeSeconds(clock.wall() + ms)).toUTCString()
    case 'absent':
      return undefined
    case 'absurd':
      return String(TEN_YEARS_S)
  }
}

const wholeSeconds = (ms: Millis): Millis => Math.ceil(ms / 1_000) * 1_000

export const limitFaults = { 'limit.429': tooMany }
