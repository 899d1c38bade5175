import { z } from 'zod'
import type { Layer } from '../mesh/call.ts'
import type { Policy } from '../mesh/policy.ts'
import { duration } from '../units/duration.ts'
import { Chooser } from './route/chooser.ts'
import { toOneAmong, toSingle } from './route/choosing.ts'
import { Ejection } from './route/ejection.ts'
import { Feasibility } from './route/feasibility.ts'
import { Homes } from './route/homes.ts'
import { replicasOf } from './route/replica.ts'
import { Scores } from './route/scores.ts'

const rate = () => z.number().min(0).max(1)

const ejection = z
  .strictObject({
    consecutive: z
      .int()
      .min(1)
      .default(5)
      .describe('Failures in a row after which a replica is taken out of use.'),
    base: duration({ min: 1 })
      .default(30_000)
      .describe('For how long the first time; each further time it is that much longer, up to 5m.'),
    most: rate()
      .default(0.1)
      .describe('Most of the replicas that may be out at once; one always may be, the last one never.'),
  })
  .describe('Takes replicas that only fail out of use for a while.')

const schema = z
  .strictObject({
    affinity: z
      .enum(['auto', 'none'])
      .default('auto')
      .describe(
        'auto: who has a session with a replica that keeps state stays with it while it can be used; none: any replica will do.',
      ),
    feasibility: z
      .enum(['off', 'observe', 'enforce'])
      .default('observe')
      .describe(
        'What is done about calls that will probably miss their deadline on every replica: nothing, counting them, or rejecting them.',
      ),
    threshold: rate().default(0.5).describe('Least probability of an answer in time for a call to be sent.'),
    explore: rate()
      .default(0.03)
      .describe(
        'Share of the calls to be rejected that are sent nevertheless, to notice when it gets better.',
      ),
    ejection: z
      .union([z.literal(false), ejection])
      .prefault({})
      .describe('Outlier ejection; false: none.'),
  })
  .describe('Sends each attempt to the replica that is likely to answer it soonest.')

/** Chooses the replica for each attempt, and learns from what becomes of it. */
export const route: Policy<z.output<typeof schema>> & { schema: typeof schema } = {
  schema,
  build(config, kit, scope): Layer {
    const { clock, dice } = kit
    const replicas = replicasOf(kit, scope)
    const rule = config.ejection
    const ejection = rule === false ? undefined : new Ejection(rule, replicas, scope.server, kit)
    const scores = new Scores(ejection)
    const feasibility = new Feasibility(config)
    const [only] = replicas
    if (only !== undefined && replicas.length === 1) return toSingle(only, scores, feasibility, clock)
    const chooser = new Chooser(replicas, dice)
    const homes = config.affinity === 'auto' ? new Homes(replicas, chooser, scope, kit) : undefined
    return toOneAmong({ replicas, chooser, scores, feasibility, clock, homes, backAt: scope.backAt })
  },
}
