import { z } from 'zod'
import { faultSchema } from '../../chaos/plan/schema.ts'
import { workload } from '../../load/workload.ts'
import { specSchema } from '../../experiments/guarded/spec.ts'
import { isObject } from '../../protocol/jsonrpc.ts'

/** Placeholder for the optional `ttl` of an experiment's fault: the run sets the real duration. */
const ANY_TTL = 1

/** The schema of an experiment file, with all known faults and workloads. */
export const experimentSpec = specSchema({
  fault: z.preprocess(
    (given) => (isObject(given) && !('ttl' in given) ? { ttl: ANY_TTL, ...given } : given),
    faultSchema(),
  ),
  workload,
})
