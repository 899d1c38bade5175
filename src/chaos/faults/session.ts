import { z } from 'zod'
import type { FaultType } from '../fault.ts'
import { errorBody, json } from './shared/http.ts'
import { requests } from './shared/requests.ts'

const schema = z.strictObject({
  status: z
    .union([z.literal(404), z.literal(400)])
    .default(404)
    .describe(
      'What the agent is told (side client): 404 as the protocol says, or 400, the common bug. Upstream the server decides.',
    ),
})

/** What servers say of a session that they do not know, by the status that they say it with. */
const words = {
  404: { code: -32001, message: 'Session not found' },
  400: { code: -32000, message: 'Bad Request: No valid session ID provided' },
} as const

const lost: FaultType<z.output<typeof schema>> = {
  schema,
  about: 'The server has forgotten the session of the caller.',
  methods: requests,
  refuses({ transport, era }) {
    if (transport !== 'http') return `there is no session to lose over ${transport}`
    return era === 'modern' ? 'the modern era has no sessions' : undefined
  },
  layer:
    ({ status }, shot) =>
    (next) =>
    (call) => {
      if (shot.side === 'upstream') {
        if (shot.world.loseSession(call.server, call.caller)) shot.note({ lost: 'session' })
        else shot.notApplicable('the caller has no session with the server')
        return next(call)
      }
      if (call.caller.takesInputRequired) {
        shot.notApplicable('the agent speaks the modern era, which has no sessions')
        return next(call)
      }
      shot.note({ status })
      return Promise.resolve(shot.reply(call, json(errorBody('null', words[status]), status)))
    },
}

/** What can happen to sessions. */
export const sessionFaults = { 'session.lost': lost }
