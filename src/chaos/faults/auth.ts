import { z } from 'zod'
import type { Call, Outcome, Service } from '../../mesh/call.ts'
import { duration } from '../../units/duration.ts'
import type { FaultType, ServerKind, Shot } from '../fault.ts'
import { NO_STATUS, speaksHttp } from './shared/http.ts'
import { requests } from './shared/requests.ts'

const refuses = ({ transport }: ServerKind) => (transport === 'stdio' ? NO_STATUS : undefined)

const expiring = z.strictObject({
  after: duration()
    .default(0)
    .describe('How long the token holds, from the first call that is hit; calls until then pass.'),
})

const expired: FaultType<z.output<typeof expiring>> = {
  schema: expiring,
  about: 'HTTP 401: the token has expired.',
  methods: requests,
  refuses,
  layer:
    ({ after }, shot) =>
    (next) =>
    (call) => {
      const now = shot.clock.now()
      const leftMs = shot.memory('token', () => ({ since: now })).since + after - now
      if (leftMs <= 0) return refused(call, next, shot, 401, 'invalid_token', 'The access token expired')
      shot.notApplicable(`the token holds for another ${Math.ceil(leftMs)} ms`)
      return next(call)
    },
}

const scoped = z.strictObject({
  scope: z
    .string()
    .regex(
      /^[\x21\x23-\x5b\x5d-\x7e]+( [\x21\x23-\x5b\x5d-\x7e]+)*$/,
      'expected OAuth scopes, parted by spaces',
    )
    .max(512)
    .default('mcp:tools')
    .describe('The scope that the token is said to lack.'),
})

const scope: FaultType<z.output<typeof scoped>> = {
  schema: scoped,
  about: 'HTTP 403: the token does not go far enough.',
  methods: requests,
  refuses,
  layer: (config, shot) => (next) => (call) =>
    refused(
      call,
      next,
      shot,
      403,
      'insufficient_scope',
      'The access token lacks a scope',
      `, scope="${config.scope}"`,
    ),
}

/** A refusal as RFC 6750 (section 3) has it: the server has not looked at the call. */
function refused(
  call: Call,
  next: Service,
  shot: Shot,
  status: 401 | 403,
  error: string,
  words: string,
  more = '',
): Promise<Outcome> {
  if (!speaksHttp(call, shot)) {
    shot.notApplicable(NO_STATUS)
    return next(call)
  }
  shot.note({ status, error })
  const reply = {
    status,
    headers: {
      'content-type': 'application/json',
      'www-authenticate': `Bearer error="${error}", error_description="${words}"${more}`,
    },
    body: JSON.stringify({ error, error_description: words }),
  }
  return Promise.resolve(shot.reply(call, reply))
}

/** What can happen to authorization. */
export const authFaults = { 'auth.expired': expired, 'auth.scope': scope }
