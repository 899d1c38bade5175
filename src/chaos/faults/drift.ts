import { z } from 'zod'
import type { Call } from '../../mesh/call.ts'
import { isObject } from '../../protocol/jsonrpc.ts'
import { PARTIAL_KEY } from '../../protocol/meta.ts'
import type { Injection, FaultType } from '../fault.ts'
import {
  type OperatorName,
  driftNames,
  driftSchema,
  partialNames,
  partialSchema,
  type DriftName,
} from '../operators/index.ts'
import type { OperatorConfig } from '../operators/operator.ts'
import {
  type Change,
  type ToolResult,
  chosen,
  mutated,
  type Choosing,
  type Done,
  type Sync,
  changing,
  blocksOf,
  textOf,
} from './tool-result.ts'

/** The operators to apply: the listed operators or, for `auto`, an operator drawn from `names`. */
interface Plan extends Choosing {
  readonly operators: 'auto' | readonly OperatorConfig[]
  readonly names: readonly OperatorName[]
}

/** The setting that selects the form of a result to change. */
const sync = z
  .enum(['both', 'structured_only', 'text_only'])
  .default('both')
  .describe('Whether structured content and JSON text change alike, or only one of them.')

/** Returns the JSON Schema of the tool's structured content; undefined when the server gives no schema. */
const schemaOf = ({ server, tool }: Call, { faultEnvironment }: Injection): unknown =>
  tool === undefined ? undefined : faultEnvironment.outputSchemaOf(server, tool)

/**
 * Applies the operators of a plan to a result. Returns the changed result with a note, or the reason why no operator
 * fits.
 */
function changeBy(result: ToolResult, plan: Plan, sync: Sync, injection: Injection): Change {
  const done: Done[] = []
  const missed: string[] = []
  let changed = result
  for (const [index, config] of configsOf(result, plan, sync, injection).entries()) {
    const step = mutated(
      changed,
      config,
      sync,
      (purpose) => injection.draw(`${purpose} ${index}`),
      plan.schema,
    )
    if (step === undefined) missed.push(config.path === undefined ? config.op : `${config.op} ${config.path}`)
    else {
      changed = step.result
      done.push(step.done)
    }
  }
  if (done.length === 0)
    return missed.length === 0 ? noOperator(plan) : `does not fit the reply: ${missed.join(', ')}`
  return { result: changed, note: missed.length === 0 ? { done } : { done, missed } }
}

const noOperator = ({ operators }: Plan) =>
  operators.length === 0 ? 'no operator is listed' : 'no operator fits the reply'

function configsOf(
  result: ToolResult,
  plan: Plan,
  sync: Sync,
  injection: Injection,
): readonly OperatorConfig[] {
  if (plan.operators !== 'auto') return plan.operators
  const config = chosen(result, plan.names, sync, (purpose) => injection.draw(purpose), plan)
  return config === undefined ? [] : [config]
}

const driftConfig = z.strictObject({
  operators: z
    .union([z.literal('auto'), z.array(driftSchema).max(32)])
    .default('auto')
    .describe(
      'The operators to apply, in this order; an empty list changes nothing. `auto` draws an operator and its place from the reply.',
    ),
  sync,
  detectable: z
    .enum(['any', 'schema_detectable', 'semantic'])
    .default('any')
    .describe(
      'Limits the draw of `auto` to changes that a schema check can detect (`schema_detectable`), or cannot detect (`semantic`).',
    ),
})

/** Changes the shape of a reply, or its values. */
export const drift: FaultType<z.output<typeof driftConfig>> = {
  schema: driftConfig,
  family: 'result',
  about: 'A reply changes its shape or its values.',
  use: 'To test agents and verdict against a server whose results have changed in shape or meaning.',
  seen: 'Another shape, or another value of the same shape.',
  containedBy: {
    policies: ['verdict', 'breaker'],
    how: 'verdict finds replies that break the outputSchema (schema_invalid) or differ from earlier replies (drift). A breaker, where configured, can count both.',
  },
  sides: ['upstream', 'client'],
  aliases: { 'mcp-chaos': ['schema_drift'], 'chaos-monkey': ['schema-mismatch'] },
  example: {
    name: 'drift',
    rate: 0.1,
    ttl: '10m',
    match: { server: 'search' },
    operators: 'auto',
    sync: 'both',
  },
  layer({ operators, sync, detectable }, injection) {
    const plan = {
      operators,
      names: driftNames,
      detectable: detectable === 'any' ? undefined : detectable,
    }
    return changing(injection, (result, call) =>
      changeBy(result, { ...plan, schema: schemaOf(call, injection) }, sync, injection),
    )
  },
}

const partialConfig = z.strictObject({
  operators: z
    .union([z.literal('auto'), z.array(partialSchema).min(1).max(32)])
    .default('auto')
    .describe(
      'The parts to leave out, in this order; `auto` draws an operator and its place from the reply.',
    ),
  sync,
  declared: z
    .boolean()
    .default(false)
    .describe('Whether the reply declares itself partial, under `_meta["dev.breakwater/partial"]`.'),
})

/** Removes a part of the data from a reply. */
export const partial: FaultType<z.output<typeof partialConfig>> = {
  schema: partialConfig,
  family: 'result',
  about: 'A reply holds only some of the data.',
  use: 'To see whether an agent notices that only some of the data has arrived.',
  seen: 'Some of the data, flagged as partial if verdict detects it.',
  containedBy: {
    policies: ['verdict'],
    how: 'verdict finds text that is cut off, and lists shorter than the total beside them (partial_silent).',
  },
  sides: ['upstream', 'client'],
  aliases: { 'mcp-chaos': ['partial_result'] },
  example: {
    name: 'partial',
    rate: 0.1,
    ttl: '10m',
    match: { server: 'search' },
    operators: [{ op: 'truncate_list', path: '/items', keep: 0.5 }],
    declared: false,
  },
  layer: ({ operators, sync, declared }, injection) =>
    changing(injection, (result, call) => {
      const plan = { operators, names: partialNames, schema: schemaOf(call, injection) }
      const change = changeBy(result, plan, sync, injection)
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

/**
 * Operators that change a value, but not its shape. They are tried first, because their changes are harder to notice.
 */
const values: readonly DriftName[] = ['stale_value', 'unit', 'precision', 'enum']

const splitSchema = z.strictObject({
  changes: z
    .enum(['text', 'structured'])
    .default('text')
    .describe('The form to change. Text that is no JSON cannot change: then the structured content changes.'),
  operators: z
    .union([z.literal('auto'), z.array(driftSchema).min(1).max(32)])
    .default('auto')
    .describe('The changes to make; `auto` draws an operator that changes a value, or else the shape.'),
})

/**
 * Makes text and structured content differ: a model that reads the text, and a program that reads the rest, get
 * different data.
 */
export const splitBrain: FaultType<z.output<typeof splitSchema>> = {
  schema: splitSchema,
  family: 'result',
  about: 'Text and structured content of a reply differ.',
  use: 'To find out which of the two forms of a result an agent relies on.',
  seen: 'A text that differs from the structured content, flagged as partial if verdict detects the difference.',
  containedBy: {
    policies: ['verdict'],
    how: 'verdict compares the two forms, and judges a reply whose forms differ as `partial_silent`.',
  },
  sides: ['upstream', 'client'],
  example: { name: 'split-brain', rate: 0.05, ttl: '10m', match: { server: 'search' }, changes: 'text' },
  layer: ({ changes, operators }, injection) =>
    changing(injection, (result, call) => {
      if (result.structuredContent === undefined) return 'the reply has no structured content'
      if (!blocksOf(result).some((block) => textOf(block) !== undefined)) return 'the reply has no text'
      const schema = schemaOf(call, injection)
      let change: Change = 'no operator fits the reply'
      for (const sync of changes === 'text'
        ? (['text_only', 'structured_only'] as const)
        : (['structured_only'] as const)) {
        for (const names of operators === 'auto' ? [values, driftNames] : [driftNames]) {
          change = changeBy(result, { operators, names, schema }, sync, injection)
          if (typeof change !== 'string') return change
        }
      }
      return change
    }),
}
