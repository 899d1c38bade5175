import { z } from 'zod'
import type { Call, Outcome, Service } from '../../mesh/call.ts'
import type { Millis } from '../../mesh/clock.ts'
import { errorText, resultText } from '../../protocol/jsonrpc.ts'
import { duration, waitDuration } from '../../units/duration.ts'
import { digest, joined } from '../decide/decide.ts'
import type { FaultType, Injection } from '../fault.ts'
import { json, NO_STATUS, speaksHttp, requests } from './shared.ts'

const expiring = z.strictObject({
  after: duration()
    .default(0)
    .describe(
      'How long the token stays valid after the first call that the fault hits. Calls pass while the token is valid.',
    ),
})

const expired: FaultType<z.output<typeof expiring>> = {
  schema: expiring,
  family: 'auth',
  about: 'HTTP 401: the token has expired.',
  use: 'To see what happens when the credentials of a server run out.',
  seen: 'BW_UPSTREAM_UNAUTHORIZED, which is not retryable.',
  containedBy: {
    policies: [],
    how: 'The owner of the credentials has to act; the error says so, and no policy retries.',
  },
  methods: requests,
  sides: ['upstream', 'client'],
  transports: { only: ['http', 'sse'], otherwise: NO_STATUS },
  example: { name: 'expired', rate: 1, ttl: '10m', match: { server: 'search' }, after: '5m' },
  layer:
    ({ after }, injection) =>
    (next) =>
    (call) => {
      const now = injection.clock.now()
      const leftMs = injection.memory('token', () => ({ since: now })).since + after - now
      if (leftMs <= 0) return refused(call, next, injection, 401, 'invalid_token', 'The access token expired')
      injection.notApplicable(`the token holds for another ${waitDuration(leftMs)}`)
      return next(call)
    },
}

const scoped = z.strictObject({
  scope: z
    .string()
    .regex(
      /^[\x21\x23-\x5b\x5d-\x7e]+( [\x21\x23-\x5b\x5d-\x7e]+)*$/,
      'expected OAuth scopes, separated by spaces',
    )
    .max(512)
    .default('mcp:tools')
    .describe('The scope the token is said to lack.'),
})

const scope: FaultType<z.output<typeof scoped>> = {
  schema: scoped,
  family: 'auth',
  about: 'HTTP 403: the scope of the token is insufficient.',
  use: 'To see what happens when the credentials of a server do not allow a tool.',
  seen: 'BW_UPSTREAM_FORBIDDEN, which is not retryable.',
  containedBy: {
    policies: [],
    how: 'The owner of the credentials has to act; the error says so, and no policy retries.',
  },
  methods: requests,
  sides: ['upstream', 'client'],
  transports: { only: ['http', 'sse'], otherwise: NO_STATUS },
  example: { name: 'scope', rate: 0.02, ttl: '10m', match: { server: 'modern' }, scope: 'files:write' },
  layer: (config, injection) => (next) => (call) =>
    refused(
      call,
      next,
      injection,
      403,
      'insufficient_scope',
      'The access token lacks a scope',
      `, scope="${config.scope}"`,
    ),
}

const refreshSchema = z.strictObject({
  after: duration()
    .optional()
    .describe(
      "How long a tenant's first token stays valid after the tenant's first call; by default for ever.",
    ),
})

/** The first token of a tenant, kept as a digest, never as the token itself. */
interface Token {
  readonly digest: string
  readonly since: Millis
}

/**
 * The gateway neither issues nor refreshes tokens: it forwards the token of the agent, or sends the token of the
 * config. A refresh shows as another token of the same tenant. A session never changes its token; another token begins
 * a new session.
 */
const refreshRefused: FaultType<z.output<typeof refreshSchema>> = {
  schema: refreshSchema,
  family: 'auth',
  about: "HTTP 401 to a tenant's second token: the server rejects the refreshed token.",
  use: 'To see whether an agent with a refused new token stops, asks, or refreshes for ever.',
  seen: 'BW_UPSTREAM_UNAUTHORIZED, which is not retryable, from the first call with another token on.',
  containedBy: {
    policies: [],
    how: 'The owner of the credentials has to act. Upstream, the fault needs a header of the agent that is forwarded as `authorization`: a token in the config never changes, and can only expire (`after`).',
  },
  methods: requests,
  sides: ['upstream', 'client'],
  transports: { only: ['http', 'sse'], otherwise: NO_STATUS },
  example: { name: 'refresh', rate: 1, ttl: '10m', match: { server: 'search' }, after: '5m' },
  layer:
    ({ after }, injection) =>
    (next) =>
    (call) => {
      const now = injection.clock.now()
      const token = digest(tokenOf(call, injection))
      const first = injection.memory<Token>(joined('token', call.server, call.tenant), () => ({
        digest: token,
        since: now,
      }))
      if (first.digest !== token)
        return refused(call, next, injection, 401, 'invalid_token', 'The access token was not accepted')
      if (after !== undefined && now >= first.since + after)
        return refused(call, next, injection, 401, 'invalid_token', 'The access token expired')
      injection.notApplicable('the token is the first token of its tenant')
      return next(call)
    },
}

/** Returns the agent's token as the receiver of the call sees the token; empty when there is none. */
function tokenOf({ headers, inbound }: Call, { side }: Injection): string {
  const held = (side === 'upstream' ? headers : inbound)?.authorization
  return typeof held === 'string' ? held : ''
}

const ownerSchema = z.strictObject({
  as: z
    .enum(['forbidden', 'not_found', 'other_result'])
    .default('forbidden')
    .describe(
      '`forbidden`: HTTP 403, only for servers behind HTTP; other servers are left alone. `not_found`: the reply says that the tool or the resource was not found. `other_result`: the reply is `result`, as if for the other owner.',
    ),
  result: z
    .record(z.string(), z.json())
    .default({ content: [{ type: 'text', text: 'No entries.' }] })
    .describe("The whole tool result of `other_result`. Never another agent's result."),
  after: duration()
    .default(0)
    .describe(
      'How long the token still belongs to its owner after the first call that the fault hits. Calls pass during this time.',
    ),
})

const ownerChanged: FaultType<z.output<typeof ownerSchema>> = {
  schema: ownerSchema,
  family: 'auth',
  about: 'The token now belongs to somebody else, and gives access to other data.',
  use: 'To find out whether an agent notices acting for another user, as after a mix-up of sessions or a change of accounts.',
  seen: 'BW_UPSTREAM_FORBIDDEN, or a "not found", or another owner\'s answer that looks right.',
  containedBy: {
    policies: [],
    how: 'The agent sees a status, and no policy retries. An answer for another owner looks right to every check: only the counter `escaped` of the fault shows it.',
  },
  methods: ['tools/call', 'resources/read'],
  sides: ['upstream', 'client'],
  example: { name: 'owner', rate: 0.05, ttl: '10m', match: { server: 'search' }, as: 'not_found' },
  layer:
    ({ as, result, after }, injection) =>
    (next) =>
    (call) => {
      const now = injection.clock.now()
      const leftMs = injection.memory('owner', () => ({ since: now })).since + after - now
      if (leftMs > 0) {
        injection.notApplicable(`the token is its owner's for another ${waitDuration(leftMs)}`)
        return next(call)
      }
      if (as === 'forbidden')
        return refused(call, next, injection, 403, 'access_denied', 'It belongs to another user')
      if (as === 'other_result' && call.tool === undefined) {
        injection.notApplicable('only tools have such a result')
        return next(call)
      }
      injection.note({ as })
      const isModern = injection.faultEnvironment.kindOf(call)?.era === 'modern'
      const whole = (held: object) => JSON.stringify({ ...(isModern && { resultType: 'complete' }), ...held })
      if (as === 'other_result') return answered(call, resultText(call.id, whole(result)), injection)
      if (call.tool === undefined)
        return answered(call, errorText(call.id, RESOURCE_NOT_FOUND, 'Resource not found'), injection)
      const missing = { content: [{ type: 'text', text: 'Not found' }], isError: true }
      return answered(call, resultText(call.id, whole(missing)), injection)
    },
}

/** The error code with which legacy servers answer the URI of an unknown resource. */
const RESOURCE_NOT_FOUND = -32002

/**
 * Returns the outcome of a JSON-RPC reply. Drops the raw bytes, because only the usual way of sending knows the agent's
 * own id.
 */
function answered(call: Call, text: string, injection: Injection): Promise<Outcome> {
  const { wire: _, ...outcome } = injection.reply(call, json(text))
  return Promise.resolve(outcome)
}

/** Returns an HTTP refusal in the form of RFC 6750 (section 3); the server does not get the call. */
function refused(
  call: Call,
  next: Service,
  injection: Injection,
  status: 401 | 403,
  error: string,
  words: string,
  more = '',
): Promise<Outcome> {
  if (!speaksHttp(call, injection)) {
    injection.notApplicable(NO_STATUS)
    return next(call)
  }
  injection.note({ status, error })
  const reply = {
    status,
    headers: {
      'content-type': 'application/json',
      'www-authenticate': `Bearer error="${error}", error_description="${words}"${more}`,
    },
    body: JSON.stringify({ error, error_description: words }),
  }
  return Promise.resolve(injection.reply(call, reply))
}

export const authFaults = {
  'auth.expired': expired,
  'auth.scope': scope,
  'auth.refresh_refused': refreshRefused,
  'auth.owner_changed': ownerChanged,
}
