import { z } from 'zod'
import { duration } from '../../units/duration.ts'
import type { FaultType } from '../fault.ts'
import { coldStart } from './composite/cold-start.ts'
import { fanout } from './composite/fanout.ts'
import { headOfLine } from './composite/head-of-line.ts'
import { pool } from './composite/pool.ts'
import { storm } from './composite/storm.ts'
import { refuse } from './shared/refuse.ts'
import { requests } from './shared/requests.ts'

const schema = z.strictObject({
  down: duration({ min: 1 }).default(10_000).describe('How long an outage lasts, where `up` parts them.'),
  up: duration()
    .default(0)
    .describe('How long all is well between two outages; without it, `when.burst` and `rate` decide alone.'),
})

/** One clock for all servers: what is down is down for everybody. */
const failureDomain: FaultType<z.output<typeof schema>> = {
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

/** What happens to many calls together. */
export const compositeFaults = {
  'hol.block': headOfLine,
  'fanout.amplify': fanout,
  'retry.storm': storm,
  'pool.exhaust': pool,
  failure_domain: failureDomain,
  cold_start: coldStart,
}
