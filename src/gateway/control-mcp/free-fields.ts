import { isDeepStrictEqual } from 'node:util'
import type { z } from 'zod'
import { faults } from '../../chaos/faults/index.ts'
import { schemasAt } from '../../config/schema/schema-walk.ts'
import { formatOf } from '../../config/schema/with-units.ts'
import type { SpecFault } from '../../experiments/guarded/spec.ts'
import { isObject } from '../../protocol/jsonrpc.ts'

/**
 * Whether a value of a fault is an agent's own choice, other than the default: a number, a text that the schema does not
 * list, or JSON whose keys or values the schema leaves open. `path`: from the fault to the value.
 */
export function isFreeText(fault: SpecFault, path: readonly string[]): boolean {
  const schema = schemaOf(fault.type)
  if (schema === undefined) return true
  const keys = Object.keys(schema.shape)
  const own = pick(fault, keys)
  const { [path[0]!]: _, ...others } = own
  const usual = schema.safeParse(others)
  const value = valueAt(own, path)
  if (usual.success && isDeepStrictEqual(valueAt(usual.data, path), value)) return false
  const schemas = path.reduce<readonly AnySchema[]>(
    (at, key) => at.flatMap((one) => partOf(one, key)).flatMap(unwrapped),
    [schema as unknown as AnySchema],
  )
  if (typeof value === 'object' && value !== null)
    return Object.keys(value).length > 0 && schemas.some(isOpen)
  if (typeof value === 'number') return true
  const isListed = schemas.some((one) => listing.has(one.def.type) && one.safeParse(value).success)
  // JSON may be true or null as well: such a value is no choice from a list.
  return !isListed || (typeof value !== 'string' && schemas.some(isOpen))
}

/** Whether a field belongs to another kind of value than the fault has, such as `delay` in a uniform distribution. */
export function isOfOtherKind(fault: SpecFault, path: readonly string[]): boolean {
  const schema = schemaOf(fault.type)
  if (schema === undefined || path.length < 2) return false
  const given = pick(fault, Object.keys(schema.shape))
  const issues = schema.safeParse(withNumber(given, path)).error?.issues ?? []
  const inner = path.slice(0, -1)
  return issues.some(
    (issue) =>
      issue.code === 'unrecognized_keys' &&
      issue.keys.includes(path.at(-1)!) &&
      isDeepStrictEqual(issue.path.map(String), inner),
  )
}

/** Formats a number of a field of a fault with the unit of the field. */
export function inUnits(type: string, path: readonly string[], value: number): string {
  const schema = schemaOf(type)
  const format = schema === undefined ? undefined : formatOf(schemasAt(schema, path))
  return format?.(value) ?? String(value)
}

const schemaOf = (type: string) => faults[type]?.schema as unknown as z.ZodObject | undefined

const pick = (fault: object, keys: readonly string[]) =>
  Object.fromEntries(Object.entries(fault).filter(([key]) => keys.includes(key)))

/** Returns a copy with a number at the path; the maps on the path exist in the value. */
function withNumber(value: unknown, [key, ...inner]: readonly string[]): unknown {
  if (key === undefined) return 1
  if (!isObject(value)) return value
  return { ...value, [key]: withNumber(value[key], inner) }
}

const valueAt = (value: unknown, path: readonly string[]): unknown =>
  path.reduce<unknown>(
    (at, key) => (typeof at === 'object' && at !== null ? (at as Record<string, unknown>)[key] : undefined),
    value,
  )

/** The parts of a definition in zod that lead to the schemas inside. */
interface AnySchema {
  readonly def: {
    readonly type: string
    readonly innerType?: AnySchema
    readonly in?: AnySchema
    readonly out?: AnySchema
    readonly left?: AnySchema
    readonly right?: AnySchema
    readonly options?: readonly AnySchema[]
    readonly getter?: () => AnySchema
    readonly shape?: Readonly<Record<string, AnySchema>>
    readonly element?: AnySchema
    readonly items?: readonly AnySchema[]
    readonly rest?: AnySchema | null
    readonly valueType?: AnySchema
    readonly catchall?: AnySchema
  }
  safeParse(value: unknown): { readonly success: boolean }
}

/** Types of schemas that list their values. */
const listing: ReadonlySet<string> = new Set(['enum', 'literal', 'boolean', 'null'])

/** Types of schemas that accept keys and values of the author's own. */
const open: ReadonlySet<string> = new Set(['unknown', 'any', 'custom', 'record', 'map', 'transform'])

const isOpen = ({ def: { type, catchall } }: AnySchema): boolean =>
  open.has(type) || (catchall !== undefined && catchall.def.type !== 'never')

/** Returns the schemas of a value, without unions, defaults and the like. */
function unwrapped(schema: AnySchema): readonly AnySchema[] {
  const { innerType, in: before, out: after, left, right, options, getter } = schema.def
  const inner = [innerType, before, after, left, right, getter?.(), ...(options ?? [])]
  const held = inner.filter((one) => one !== undefined)
  return held.length === 0 ? [schema] : held.flatMap(unwrapped)
}

/** Returns the schemas of a part; the schema itself if it describes no parts. */
function partOf(schema: AnySchema, key: string): readonly AnySchema[] {
  const { shape, catchall, element, items, rest, valueType } = schema.def
  const part = shape?.[key] ?? catchall ?? element ?? items?.[Number(key)] ?? rest ?? valueType
  return part === undefined || part === null ? (isOpen(schema) ? [schema] : []) : [part]
}
