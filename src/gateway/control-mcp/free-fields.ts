import { isDeepStrictEqual } from 'node:util'
import type { z } from 'zod'
import { faults } from '../../chaos/faults/index.ts'
import type { SpecFault } from '../../experiments/guarded/spec.ts'
import { isObject } from '../../protocol/jsonrpc.ts'

/** A text that no list of choices has. */
const ANY = 'q7-any-text-0f3c'

/**
 * Whether a field of a fault is an agent's own choice: a number other than the default, or a text other than the default
 * where the schema accepts any text. `path`: from the fault to the number or text.
 */
export function isFreeText(fault: SpecFault, path: readonly string[]): boolean {
  const schema = faults[fault.type]?.schema as unknown as z.ZodObject | undefined
  if (schema === undefined) return true
  const keys = Object.keys(schema.shape)
  const own = Object.fromEntries(Object.entries(fault).filter(([key]) => keys.includes(key)))
  const { [path[0]!]: _, ...others } = own
  const usual = schema.safeParse(others)
  const value = valueAt(own, path)
  if (usual.success && isDeepStrictEqual(valueAt(usual.data, path), value)) return false
  return typeof value === 'number' || schema.safeParse(replaced(own, path)).success
}

const valueAt = (value: unknown, path: readonly string[]): unknown =>
  path.reduce<unknown>(
    (at, key) => (typeof at === 'object' && at !== null ? (at as Record<string, unknown>)[key] : undefined),
    value,
  )

/** Returns a copy with `ANY` at the path. */
function replaced(value: unknown, [key, ...inner]: readonly string[]): unknown {
  if (key === undefined) return ANY
  if (Array.isArray(value))
    return value.map((item, index) => (String(index) === key ? replaced(item, inner) : (item as unknown)))
  return isObject(value) ? { ...value, [key]: replaced(value[key], inner) } : value
}
