import { z } from 'zod'
import { derive } from '../../mesh/call.ts'
import { glob } from '../../mesh/match.ts'
import type { FaultType } from '../fault.ts'
import { diverted } from './shared.ts'

const schema = z.strictObject({
  ask: z
    .enum(['*', 'sampling/createMessage', 'elicitation/create', 'roots/list'])
    .default('*')
    .describe('The server requests to hit; all by default.'),
  lost: z
    .enum(['request', 'answer'])
    .default('request')
    .describe(
      '`request`: the agent never gets the question. `answer`: the agent gets the question, but its answer never reaches the server.',
    ),
})

/**
 * Holds a server's questions, or the agent's answers, back. The held messages are sent when the fault ends, because the
 * server still waits.
 */
const unanswered: FaultType<z.output<typeof schema>> = {
  schema,
  family: 'stream',
  about: "A server's question to the agent during a call is never answered.",
  use: 'To find out whether an unanswered question holds a call, or a whole server, for ever.',
  seen: 'No question, or a question whose answer changes nothing, and then a timeout.',
  containedBy: {
    policies: ['attemptTimeout', 'deadline'],
    how: 'Upstream, timeouts continue, because no person is thinking about an answer. On the client side, timeouts pause as for a thinking person, until the agent gives up.',
  },
  sides: ['upstream', 'client'],
  example: { name: 'unanswered', rate: 0.1, ttl: '10m', match: { server: 'search' }, lost: 'answer' },
  layer({ ask, lost }, injection) {
    const isMeant = glob(ask)
    return (next) => (call) => {
      const asked: string[] = []
      const held: (() => void)[] = []
      const letGo = () => {
        for (const pass of held.splice(0)) pass()
      }
      const channel = diverted(call.channel, {
        send(message, answer) {
          const { method } = message.value
          if (answer === undefined || typeof method !== 'string' || !isMeant(method))
            return call.channel.send(message, answer)
          if (injection.released.aborted) return call.channel.send(message, answer)
          asked.push(method)
          injection.note({ lost, asked: [...asked] })
          if (lost === 'request') {
            held.push(() => void call.channel.send(message, answer))
            return undefined
          }
          return call.channel.send(message, (text) => {
            if (injection.released.aborted) return answer(text)
            // Ignores errors: the server may be gone by now, or accept no answer any more.
            held.push(() => void answer(text).catch(() => undefined))
            return Promise.resolve()
          })
        },
      })
      injection.released.addEventListener('abort', letGo)
      return next(derive(call, { channel })).finally(() => {
        injection.released.removeEventListener('abort', letGo)
        if (asked.length === 0) injection.notApplicable('the server asked nothing')
      })
    }
  },
}

/** Faults of servers' requests. */
export const serverRequestFaults = { 'server_request.unanswered': unanswered }
