import { z } from 'zod'
import type { Origins } from '../files/origins.ts'
import type { ConfigPath } from '../files/path.ts'
import { isPlainMap } from './plain-map.ts'
import { schemasAt } from './schema-walk.ts'

/**
 * Gives text that came out of a variable the type that its place asks for, since a variable holds only text:
 * `maxInFlight: ${MAX}` is a number. Text stays where text is allowed.
 */
export function coerce(
  value: unknown,
  schema: z.core.$ZodType,
  origins: Origins,
  path: ConfigPath = [],
): unknown {
  if (Array.isArray(value)) return value.map((item, index) => coerce(item, schema, origins, [...path, index]))
  if (isPlainMap(value)) {
    const entries = Object.entries(value)
    return Object.fromEntries(
      entries.map(([key, held]) => [key, coerce(held, schema, origins, [...path, key])]),
    )
  }
  if (typeof value !== 'string' || (origins.get(path)?.variables.length ?? 0) === 0) return value
  const schemas = schemasAt(schema, path)
  if (schemas.some((candidate) => candidate instanceof z.ZodString || candidate instanceof z.ZodEnum))
    return value
  const takes = (sample: boolean) =>
    schemas.some(
      (candidate) =>
        candidate instanceof z.ZodBoolean ||
        (candidate instanceof z.ZodLiteral && candidate.values.has(sample)),
    )
  if (value === 'true' && takes(true)) return true
  if (value === 'false' && takes(false)) return false
  const isNumber = schemas.some((candidate) => candidate instanceof z.ZodNumber)
  return isNumber && /^-?\d+(\.\d+)?$/.test(value) ? Number(value) : value
}
