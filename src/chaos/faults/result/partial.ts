import { z } from 'zod'
import { isObject } from '../../../protocol/jsonrpc.ts'
import { PARTIAL_KEY } from '../../../protocol/meta.ts'
import type { FaultType } from '../../fault.ts'
import { partialNames, partialSchema } from '../../operators/index.ts'
import { changeBy, schemaOf, sync } from './by-operators.ts'
import { changing, type Change } from './change.ts'
import type { Done } from './mutate.ts'

const partialConfig = z.strictObject({
  operators: z
    .union([z.literal('auto'), z.array(partialSchema).min(1).max(32)])
    .default('auto')
    .describe('What is left out, in this order; `auto` draws one operator and its place from what there is.'),
  sync,
  declared: z
    .boolean()
    .default(false)
    .describe('Whether the reply says that it is partial, under `_meta["dev.breakwater/partial"]`.'),
})

/** Replies that are only a part of what they should be. */
export const partial: FaultType<z.output<typeof partialConfig>> = {
  schema: partialConfig,
  about: 'A reply holds only some of the data.',
  layer: ({ operators, sync, declared }, shot) =>
    changing(shot, (result, call) => {
      const plan = { operators, names: partialNames, schema: schemaOf(call, shot) }
      const change = changeBy(result, plan, sync, shot)
      return declared && typeof change !== 'string' ? declaring(change) : change
    }),
}

function declaring({ result, note }: Exclude<Change, string>): Change {
  const missing = (note.done as readonly Done[]).flatMap(({ path, parts }) =>
    parts.map((part) => part + path),
  )
  const entry = { reason: 'some of the data could not be fetched', missing }
  const meta = isObject(result._meta) ? result._meta : {}
  return { result: { ...result, _meta: { ...meta, [PARTIAL_KEY]: entry } }, note }
}
