import { z } from 'zod'
import {
  lieTotal,
  dropNextCursor,
  truncateList,
  dropOptional,
  dropRequired,
  nullValue,
  rename,
} from './lists.ts'
import type { Operator, OperatorConfig } from './operator.ts'
import { enumValue, precision, typeChange, unit } from './scalars.ts'
import { addField, arrayToObject, nest, scalarToArray, unnest } from './shape.ts'
import { cutJson, dropBlocks, truncateText } from './text.ts'
import { date, staleValue } from './time.ts'

/** Operators that make a reply wrong: a line per operator. */
export const driftOperators = {
  rename,
  type: typeChange,
  null: nullValue,
  drop_required: dropRequired,
  drop_optional: dropOptional,
  nest,
  unnest,
  enum: enumValue,
  unit,
  add_field: addField,
  stale_value: staleValue,
  date,
  array_to_object: arrayToObject,
  scalar_to_array: scalarToArray,
  precision,
} as const

/** Operators that leave only a part of a reply. */
export const partialOperators = {
  truncate_list: truncateList,
  truncate_text: truncateText,
  drop_blocks: dropBlocks,
  cut_json: cutJson,
  drop_next_cursor: dropNextCursor,
  lie_total: lieTotal,
} as const

export type DriftName = keyof typeof driftOperators
export type PartialName = keyof typeof partialOperators
export type OperatorName = DriftName | PartialName

export const driftNames = Object.keys(driftOperators) as readonly DriftName[]
export const partialNames = Object.keys(partialOperators) as readonly PartialName[]

export const driftSchema = settingsOf(driftOperators)

export const partialSchema = settingsOf(partialOperators)

/** Returns the schema for the settings of any of these operators, discriminated by `op`. */
function settingsOf<Operators extends Readonly<Record<string, { readonly schema: z.ZodObject }>>>(
  operators: Operators,
) {
  const schemas = Object.values(operators).map(({ schema }) => schema)
  type Settings = Operators[keyof Operators]['schema']
  return z.discriminatedUnion('op', schemas as [Settings, ...Settings[]])
}

const all: Readonly<Record<string, Operator<OperatorConfig>>> = { ...driftOperators, ...partialOperators }

/** Returns the operator of this name. Its methods take only settings read by its own schema. */
export function operatorOf(op: string): Operator<OperatorConfig> {
  const found = all[op]
  if (found === undefined) throw new Error(`there is no operator ${op}`)
  return found
}
