import { z } from 'zod'
import type { CallResult, Outcome } from '../../../mesh/call.ts'
import { encodeEvent } from '../../../protocol/sse.ts'
import type { FaultType } from '../../fault.ts'
import { json } from '../shared/http.ts'
import { requests } from '../shared/requests.ts'
import { orphan } from './orphan.ts'
import { breakable, unopened, withId } from './replies.ts'

const schema = z.strictObject({})

type Config = z.output<typeof schema>

/** The server runs the call and answers it, under the id of another that there never was. */
export const wrongId = {
  schema,
  about: "The server's reply carries the id of another request.",
  methods: requests,
  layer: (_, shot) => (next) => (call) =>
    next(unopened(call, shot)).then((outcome) => {
      const result = breakable(call, outcome, shot)
      if (result === undefined) return outcome
      const id = `${call.id}-other`
      shot.note({ id })
      const { text, status } = result
      return shot.reply(call, json(withId(text, JSON.stringify(id)), status))
    }),
} satisfies FaultType<Config>

/**
 * The reply comes twice. Upstream the second one reaches the gateway outside of the call, which is over with the
 * first. The agent gets both as events of one stream: JSON has no room for two.
 */
export const duplicate = {
  schema,
  about: "The server's reply comes twice.",
  methods: requests,
  layer: (_, shot) => (next) => (call) =>
    next(unopened(call, shot)).then((outcome) => {
      const result = breakable(call, outcome, shot)
      if (result === undefined) return outcome
      if (shot.side === 'client' && call.caller.takesInputRequired) {
        shot.notApplicable("only the edge knows the agent's own id in the modern era")
        return outcome
      }
      shot.note({ effect: shot.side === 'upstream' ? 'orphan' : 'two events' })
      if (shot.side === 'client') return twice(outcome, result)
      orphan(call, result, shot)
      return outcome
    }),
} satisfies FaultType<Config>

function twice(outcome: Outcome, { text }: CallResult): Outcome {
  const event = encodeEvent(text)
  const headers = { 'content-type': 'text/event-stream', 'cache-control': 'no-store' }
  return { ...outcome, wire: { status: 200, headers, body: event + event } }
}
