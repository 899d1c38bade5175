import { z } from 'zod'
import type { ConfigPath, Origins } from '../files/places.ts'
import { secrets, type Secrecy } from '../secrets/secrets.ts'
import { isPlainMap } from './server-names.ts'

type Schema = z.core.$ZodType

/** Returns a schema with all schemas that it wraps or offers as alternatives. */
export function spread(schema: Schema): Schema[] {
  return [schema, ...inner(schema).flatMap(spread)]
}

function inner(schema: Schema): Schema[] {
  if (schema instanceof z.ZodUnion) return [...schema.options]
  if (schema instanceof z.ZodPipe) return [schema.in, schema.out]
  if (schema instanceof z.ZodOptional || schema instanceof z.ZodNullable) return [schema.unwrap()]
  if (schema instanceof z.ZodDefault || schema instanceof z.ZodPrefault) return [schema.unwrap()]
  return []
}

/** Returns the schemas for the value under `key`, from schemas of the map or list around it. */
export function step(schemas: readonly Schema[], key: string | number): Schema[] {
  return schemas.flatMap((schema): Schema[] => {
    if (schema instanceof z.ZodArray) return spread(schema.def.element)
    if (schema instanceof z.ZodRecord) return spread(schema.valueType)
    if (!(schema instanceof z.ZodObject)) return []
    const shape: Readonly<Record<string, Schema>> = schema.def.shape
    const value = Object.hasOwn(shape, key) ? shape[key] : undefined
    return value === undefined ? [] : spread(value)
  })
}

/** Returns every schema that applies at `path`. */
export function schemasAt(root: Schema, path: ConfigPath): Schema[] {
  return path.reduce<Schema[]>(step, spread(root))
}

/** Returns the object schemas among `schemas`; several if a union has several objects. */
export function objectsOf(schemas: readonly Schema[]): z.ZodObject[] {
  return schemas.filter((schema) => schema instanceof z.ZodObject)
}

/** Returns the secrecy that any of `schemas` gives to its value; undefined if none is secret. */
export function secrecyOf(schemas: readonly Schema[]): Secrecy | undefined {
  return schemas.map((schema) => secrets.get(schema)?.secrecy).find((secrecy) => secrecy !== undefined)
}

/** Returns the secrecy of the value at `path`; values within a secret have the secrecy of that secret. */
export function secrecyAt(root: Schema, path: ConfigPath): Secrecy | undefined {
  const places = path.map((_, index) => path.slice(0, index + 1))
  return places.map((place) => secrecyOf(schemasAt(root, place))).find((secrecy) => secrecy !== undefined)
}

/**
 * Converts text from a variable to the type expected at its place, since a variable holds only text: `maxInFlight:
 * ${MAX}` is a number. Text stays text where the schema allows text.
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
