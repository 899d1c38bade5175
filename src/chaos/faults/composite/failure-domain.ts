import { z } from 'zod'
import { duration } from '../../../units/duration.ts'
import type { FaultType } from '../../fault.ts'
import { refuse } from '../shared/refuse.ts'
import { requests } from '../shared/requests.ts'

const schema = z.strictObject({
  down: duration({ min: 1 }).default(10_000).describe('How long an outage lasts, where `up` parts them.'),
  up: duration()
    .default(0)
    .describe('How long all is well between two outages; without it, `when.burst` and `rate` decide alone.'),
})

/** `failure_domain`: one clock for all servers: what is down is down for everybody. */
export const failureDomain: FaultType<z.output<typeof schema>> = {
  schema,
  about: 'All servers that it matches refuse connections at the same time.',
  methods: requests,
  layer:
    ({ down, up }, shot) =>
    (next) =>
    (call) => {
      const now = shot.clock.now()
      const phase = (now - shot.memory('outages', () => ({ since: now })).since) % (down + up)
      if (up > 0 && phase >= down) {
        shot.notApplicable(`all is well for another ${Math.ceil(down + up - phase)} ms`)
        return next(call)
      }
      shot.note({ effect: 'refused' })
      return Promise.resolve(refuse(call, shot))
    },
}
