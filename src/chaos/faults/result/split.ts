import { z } from 'zod'
import type { FaultType } from '../../fault.ts'
import { driftNames, driftSchema, type DriftName } from '../../operators/index.ts'
import { changeBy, schemaOf } from './by-operators.ts'
import { blocksOf, changing, textOf, type Change } from './change.ts'

/** Another value of the same shape is harder to notice: these come first. */
const values: readonly DriftName[] = ['stale_value', 'unit', 'precision', 'enum']

const schema = z.strictObject({
  changes: z
    .enum(['text', 'structured'])
    .default('text')
    .describe(
      'Which of the two is changed. Text that is no JSON cannot be: then it is the structured content.',
    ),
  operators: z
    .union([z.literal('auto'), z.array(driftSchema).min(1).max(32)])
    .default('auto')
    .describe('What is done to it; `auto` draws one operator that changes a value, or else the shape.'),
})

/** A model that reads the text and a program that reads the structured content get to know different things. */
export const splitBrain: FaultType<z.output<typeof schema>> = {
  schema,
  about: 'Text and structured content of a reply differ.',
  layer: ({ changes, operators }, shot) =>
    changing(shot, (result, call) => {
      if (result.structuredContent === undefined) return 'the reply has no structured content'
      if (!blocksOf(result).some((block) => textOf(block) !== undefined)) return 'the reply has no text'
      const schema = schemaOf(call, shot)
      let change: Change = 'no operator fits the reply'
      for (const sync of changes === 'text'
        ? (['text_only', 'structured_only'] as const)
        : (['structured_only'] as const)) {
        for (const names of operators === 'auto' ? [values, driftNames] : [driftNames]) {
          change = changeBy(result, { operators, names, schema }, sync, shot)
          if (typeof change !== 'string') return change
        }
      }
      return change
    }),
}
