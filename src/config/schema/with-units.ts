import { z } from 'zod'
import { quantities } from '../../units/quantity.ts'
import { spread, step } from './schema-walk.ts'

type Schema = z.core.$ZodType

/** Returns a value with its durations and sizes as texts with units, as in a config. */
export const withUnits = (schema: Schema, value: unknown): unknown => unitsIn(spread(schema), value)

function unitsIn(schemas: readonly Schema[], value: unknown): unknown {
  if (typeof value === 'number') return formatOf(schemas)?.(value) ?? value
  if (Array.isArray(value)) return value.map((one, at) => unitsIn(step(schemas, at), one))
  if (typeof value !== 'object' || value === null) return value
  const own = schemas.filter((schema) => mayHold(schema, value as Readonly<Record<string, unknown>>))
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, unitsIn(step(own, key), one)]))
}

/** Returns the formatter of a number: undefined without a unit, or when alternatives have different units. */
export function formatOf(schemas: readonly Schema[]): ((value: number) => string) | undefined {
  const formats = new Set(schemas.flatMap((schema) => quantities.get(schema)?.format ?? []))
  return formats.size === 1 ? [...formats][0] : undefined
}

/** False for an alternative of a union that is for values of another kind. */
const mayHold = (schema: Schema, value: Readonly<Record<string, unknown>>): boolean =>
  !(schema instanceof z.ZodObject) ||
  Object.entries(schema.def.shape).every(
    ([key, held]) => !(held instanceof z.ZodLiteral) || held.values.has(value[key] as never),
  )
