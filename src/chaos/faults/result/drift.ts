import { z } from 'zod'
import type { Call } from '../../../mesh/call.ts'
import { isObject } from '../../../protocol/jsonrpc.ts'
import { PARTIAL_KEY } from '../../../protocol/meta.ts'
import type { FaultType, Shot } from '../../fault.ts'
import {
  driftNames,
  driftSchema,
  partialNames,
  partialSchema,
  type OperatorName,
} from '../../operators/index.ts'
import type { OperatorConfig } from '../../operators/operator.ts'
import { changing, type Change, type ToolResult } from './change.ts'
import { chosen, mutated, type Choosing, type Done, type Sync } from './mutate.ts'

/** Which operators: listed ones, or one that is drawn of those named. */
interface Plan extends Choosing {
  readonly operators: 'auto' | readonly OperatorConfig[]
  readonly names: readonly OperatorName[]
}

const sync = z
  .enum(['both', 'structured_only', 'text_only'])
  .default('both')
  .describe('Whether structured content and text that is JSON change alike, or only one of them.')

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

/** What the tool of a call says of its structured content, for operators to choose by. */
export const schemaOf = ({ server, tool }: Call, { world }: Shot): unknown =>
  tool === undefined ? undefined : world.outputSchemaOf(server, tool)

/** Applies a plan to a result. Operators that fit nowhere are noted; when none fits, there is no change. */
export function changeBy(result: ToolResult, plan: Plan, sync: Sync, shot: Shot): Change {
  const done: Done[] = []
  const missed: string[] = []
  let changed = result
  for (const [index, config] of configsOf(result, plan, sync, shot).entries()) {
    const step = mutated(changed, config, sync, (purpose) => shot.draw(`${purpose} ${index}`), plan.schema)
    if (step === undefined) missed.push(config.path === undefined ? config.op : `${config.op} ${config.path}`)
    else {
      changed = step.result
      done.push(step.done)
    }
  }
  if (done.length === 0)
    return missed.length === 0 ? 'no operator fits the reply' : `does not fit the reply: ${missed.join(', ')}`
  return { result: changed, note: missed.length === 0 ? { done } : { done, missed } }
}

function configsOf(result: ToolResult, plan: Plan, sync: Sync, shot: Shot): readonly OperatorConfig[] {
  if (plan.operators !== 'auto') return plan.operators
  const config = chosen(result, plan.names, sync, (purpose) => shot.draw(purpose), plan)
  return config === undefined ? [] : [config]
}
