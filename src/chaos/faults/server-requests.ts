import { z } from 'zod'
import { derive } from '../../mesh/call.ts'
import { glob } from '../../mesh/match.ts'
import type { FaultType } from '../fault.ts'
import { diverted } from './shared.ts'

const schema = z.strictObject({
  ask: z
    .enum(['*', 'sampling/createMessage', 'elicitation/create', 'roots/list'])
    .default('*')
    .describe('Which requests of the server; all unless given.'),
  lost: z
    .enum(['request', 'answer'])
    .default('request')
    .describe(
      '`request`: the agent is never asked. `answer`: it is, and its answer never reaches the server.',
    ),
})

/** Messages that were held back go on when the fault ends: the server has waited for an answer since. */
const unanswered: FaultType<z.output<typeof schema>> = {
  schema,
  family: 'stream',
  about: 'What a server asks of the agent in the course of a call is never answered.',
  use: 'To find out whether a question without an answer holds a call, or a whole server, for ever.',
  seen: 'No question, or one whose answer changes nothing, and then a timeout.',
  containedBy: {
    policies: ['attemptTimeout', 'deadline'],
    how: 'Upstream nobody is asked, or has answered, and times go on; on the client side they stand still, as for a person who thinks, until the agent gives up.',
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
            // The server is gone by now, or takes nothing: it misses no answer then.
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

/** Faults of the requests that servers send. */
export const serverRequestFaults = { 'server_request.unanswered': unanswered }
