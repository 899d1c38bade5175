import { z } from 'zod'
import { faultSchema } from '../../chaos/plan/schema.ts'
import { workload } from '../../load/workload.ts'
import { specSchema } from '../../experiments/guarded/spec.ts'
import { isObject } from '../../protocol/jsonrpc.ts'

/** In place of a time that a fault of an experiment need not have: the run says how long it is armed. */
const ANY_TTL = 1

/** The schema of an experiment file, with the faults and workloads that this gateway knows. */
export const experimentSpec = specSchema({
  fault: z.preprocess(
    (given) => (isObject(given) && !('ttl' in given) ? { ttl: ANY_TTL, ...given } : given),
    faultSchema(),
  ),
  workload,
})
