import { z } from 'zod'
import { derive } from '../../../mesh/call.ts'
import { duration } from '../../../units/duration.ts'
import type { FaultType } from '../../fault.ts'
import { requests } from '../shared/requests.ts'
import { SlowWay } from './slow-way.ts'

const schema = z.strictObject({
  hold: duration({ min: 1 }).default(60_000).describe('How long nothing comes back; then everything does.'),
})

/**
 * The server gets the call and may run it, but nothing comes back, neither its reply nor a message, until `hold` is
 * over, the fault ends, or the caller gives up. Then the way is free, as after a hole in the network.
 */
export const halfOpen = {
  schema,
  about: 'The server gets the call, and nothing comes back for as long as it holds.',
  methods: requests,
  layer:
    ({ hold }, shot) =>
    (next) =>
    (call) => {
      shot.note({ holdMs: hold })
      const silence = shot.pause(hold, call)
      const way = new SlowWay(call, () => silence)
      return next(derive(call, { channel: way.channel })).then((outcome) => way.bring(outcome))
    },
} satisfies FaultType<z.output<typeof schema>>
