import { z } from 'zod'
import type { Call, Outcome, Service } from '../../../mesh/call.ts'
import type { Millis } from '../../../mesh/clock.ts'
import { duration } from '../../../units/duration.ts'
import type { FaultType, Shot } from '../../fault.ts'
import { firstOf } from '../shared/first-of.ts'
import { givenUp } from '../shared/given-up.ts'
import { requests } from '../shared/requests.ts'

/** The calls to one server, one behind the other. */
interface Lane {
  /** Settles when the last one in it has left. */
  last: Promise<unknown>
  length: number
}

const schema = z.strictObject({
  hold: duration({ min: 1 })
    .default(2_000)
    .describe('How long the call at the head of the queue takes longer.'),
})

/** `hol.block`: a call that finds nobody before it is slow, and the others have to wait until it is through. */
export const headOfLine: FaultType<z.output<typeof schema>> = {
  schema,
  about: 'The calls to a server queue one after another behind a slow one.',
  methods: requests,
  layer:
    ({ hold }, shot) =>
    (next) =>
    (call) =>
      queued(call, next, shot, hold),
}

async function queued(call: Call, next: Service, shot: Shot, holdMs: Millis): Promise<Outcome> {
  const lane = shot.memory<Lane>(call.server, () => ({ last: Promise.resolve(), length: 0 }))
  const enteredAt = shot.clock.now()
  const ahead = lane.length++
  const before = lane.last
  let leave: () => void = () => undefined
  const left = new Promise<void>((resolve) => (leave = resolve))
  // Whoever leaves the middle of the queue lets nobody pass those before.
  lane.last = before.then(() => left)
  try {
    if (ahead === 0) await shot.pause(holdMs, call)
    else await firstOf(before, shot.released, call.signal)
    shot.note({ ahead, waitedMs: shot.clock.now() - enteredAt })
    return call.signal.aborted ? givenUp(call) : await next(call)
  } finally {
    lane.length--
    leave()
  }
}
