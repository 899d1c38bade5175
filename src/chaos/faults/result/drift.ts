import { z } from 'zod'
import type { FaultType } from '../../fault.ts'
import { driftNames, driftSchema } from '../../operators/index.ts'
import { changeBy, schemaOf, sync } from './by-operators.ts'
import { changing } from './change.ts'

const driftConfig = z.strictObject({
  operators: z
    .union([z.literal('auto'), z.array(driftSchema).min(1).max(32)])
    .default('auto')
    .describe('What is done, in this order; `auto` draws one operator and its place from what there is.'),
  sync,
  detectable: z
    .enum(['any', 'schema_detectable', 'semantic'])
    .default('any')
    .describe('Which operators `auto` draws from: those that a schema can show, or those that none can.'),
})

/** Replies of another shape, or of the same shape with wrong values. */
export const drift: FaultType<z.output<typeof driftConfig>> = {
  schema: driftConfig,
  about: 'A reply changes its shape or its values.',
  layer({ operators, sync, detectable }, shot) {
    const plan = {
      operators,
      names: driftNames,
      detectable: detectable === 'any' ? undefined : detectable,
    }
    return changing(shot, (result, call) =>
      changeBy(result, { ...plan, schema: schemaOf(call, shot) }, sync, shot),
    )
  },
}
