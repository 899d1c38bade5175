import { z } from 'zod'
import { derive, type Call } from '../../../mesh/call.ts'
import type { Millis } from '../../../mesh/clock.ts'
import { duration } from '../../../units/duration.ts'
import type { FaultType, Shot } from '../../fault.ts'
import { endOf, givenUp } from '../shared/given-up.ts'
import { requests } from '../shared/requests.ts'
import { NO_REPLY } from './replies.ts'

const schema = z.strictObject({
  maxHold: duration({ min: 1 }).default(1_000).describe('How long a reply waits at most to be overtaken.'),
})

/** By how much a reply is overtaken, in milliseconds: replies go over sockets of their own, and are read in any order. */
const AHEAD_MS = 25

/** The reply of a server that waits for another to overtake it. */
interface Line {
  letGo: (() => void) | undefined
}

/**
 * Replies swap places by twos: one waits until the next one of the same server that the fault hits has passed.
 * With a rate below 1 it may be overtaken by many others as well.
 */
export const reorder = {
  schema: schema,
  about: 'A reply waits until a later one of the same server has passed.',
  methods: requests,
  layer:
    ({ maxHold }, shot) =>
    (next) =>
    (call) =>
      next(call).then((outcome) => {
        if (shot.released.aborted) return outcome
        if (outcome.kind !== 'answered') {
          shot.notApplicable(NO_REPLY)
          return outcome
        }
        const line = shot.memory<Line>(`line of ${call.server}`, () => ({ letGo: undefined }))
        const { letGo } = line
        if (letGo === undefined) return stand(line, maxHold, call, shot).then((held) => held ?? outcome)
        line.letGo = undefined
        shot.note({ effect: 'overtakes' })
        shot.clock.after(AHEAD_MS, letGo)
        return outcome
      }),
} satisfies FaultType<z.output<typeof schema>>

/** Waits to be overtaken. Undefined when the reply may go on, and what became of the call otherwise. */
function stand(line: Line, maxHold: Millis, call: Call, shot: Shot) {
  const { end, leave } = endOf(call)
  const since = shot.clock.now()
  let isOvertaken = false
  const letGo = () => {
    isOvertaken = true
    end.abort('overtaken')
  }
  line.letGo = letGo
  return shot.pause(maxHold, derive(call, { signal: end })).then((how) => {
    leave()
    if (line.letGo === letGo) line.letGo = undefined
    if (isOvertaken) shot.note({ effect: 'overtaken', heldMs: Math.round(shot.clock.now() - since) })
    else if (how === 'aborted') return givenUp(call)
    else if (how === 'over') shot.notApplicable(`no other reply came within ${maxHold} ms`)
    return undefined
  })
}
