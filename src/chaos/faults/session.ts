import { z } from 'zod'
import type { FaultType } from '../fault.ts'
import { errorBody, json, requests } from './shared.ts'

const schema = z.strictObject({
  status: z
    .union([z.literal(404), z.literal(400)])
    .default(404)
    .describe(
      'The status for the agent (side client): 404 as the protocol says, or 400, the common bug. Upstream the server decides.',
    ),
})

/** Servers' errors for an unknown session, by HTTP status. */
const words = {
  404: { code: -32001, message: 'Session not found' },
  400: { code: -32000, message: 'Bad Request: No valid session ID provided' },
} as const

const lost: FaultType<z.output<typeof schema>> = {
  schema,
  family: 'session',
  about: "The server has forgotten the caller's session.",
  use: 'To test a server that restarts and loses its sessions.',
  seen: 'Nothing, or, for calls sent at the same time, an error that says that the call may have run.',
  containedBy: { policies: [], how: 'The gateway initializes a new session once and sends the call again.' },
  methods: requests,
  sides: ['upstream', 'client'],
  transports: { only: ['http'], otherwise: 'there is no session to lose over {}' },
  eras: { only: ['legacy'], otherwise: 'the modern era has no sessions' },
  example: { name: 'session', rate: 0.02, ttl: '10m', match: { server: 'search' } },
  layer:
    ({ status }, injection) =>
    (next) =>
    (call) => {
      if (injection.side === 'upstream') {
        if (injection.faultEnvironment.loseSession(call.server, call.caller))
          injection.note({ lost: 'session' })
        else injection.notApplicable('the caller has no session with the server')
        return next(call)
      }
      if (call.caller.era === 'modern') {
        injection.notApplicable('the agent speaks the modern era, which has no sessions')
        return next(call)
      }
      injection.note({ status })
      return Promise.resolve(injection.reply(call, json(errorBody('null', words[status]), status)))
    },
}

export const sessionFaults = { 'session.lost': lost }
