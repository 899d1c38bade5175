import { coldStart } from './composite/cold-start.ts'
import { failureDomain } from './composite/failure-domain.ts'
import { fanout } from './composite/fanout.ts'
import { headOfLine } from './composite/head-of-line.ts'
import { pool } from './composite/pool.ts'
import { storm } from './composite/storm.ts'

/** What happens to many calls together. */
export const compositeFaults = {
  'hol.block': headOfLine,
  'fanout.amplify': fanout,
  'retry.storm': storm,
  'pool.exhaust': pool,
  failure_domain: failureDomain,
  cold_start: coldStart,
}
