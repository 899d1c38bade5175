import { z } from 'zod'
import type { Call, CallResult } from '../../../mesh/call.ts'
import type { Millis } from '../../../mesh/clock.ts'
import { duration } from '../../../units/duration.ts'
import type { FaultType, Shot } from '../../fault.ts'
import { givenUp } from '../shared/given-up.ts'
import { requests } from '../shared/requests.ts'
import { orphan } from './orphan.ts'
import { NO_REPLY } from './replies.ts'

const schema = z.strictObject({
  delay: duration({ min: 1 }).default(5_000).describe('How long after the server gave it the reply arrives.'),
})

/**
 * The server runs the call at once, and its reply is late. A gateway that does not wait for it gets it all the
 * same, and has to know that nobody wants it any more.
 */
export const late = {
  schema: schema,
  about: "The server's reply is late; the call has run long before.",
  methods: requests,
  layer:
    ({ delay }, shot) =>
    (next) =>
    (call) =>
      next(call).then((outcome) => {
        if (outcome.kind !== 'answered') {
          shot.notApplicable(NO_REPLY)
          return outcome
        }
        shot.note({ delayMs: delay })
        const dueAt = shot.clock.now() + delay
        return shot.pause(delay, call).then((how) => {
          if (how !== 'aborted') return outcome
          if (shot.side === 'upstream') arriveLate(call, outcome.result, dueAt - shot.clock.now(), shot)
          return givenUp(call)
        })
      }),
} satisfies FaultType<z.output<typeof schema>>

/** Not when the fault has ended by then: nothing may happen after that. */
function arriveLate(call: Call, result: CallResult, inMs: Millis, shot: Shot): void {
  const { released } = shot
  if (released.aborted) return
  const cancel = shot.clock.after(inMs, () => {
    released.removeEventListener('abort', cancel)
    orphan(call, result, shot)
  })
  released.addEventListener('abort', cancel, { once: true })
}
