import { stringify } from 'yaml'
import { z } from 'zod'
import { quantities } from '../../src/units/quantity.ts'

/** Building blocks of documentation pages: Markdown in prettier's format, and schemas as tables. */

/** Pages by their paths in `docs`. */
export type Pages = Readonly<Record<string, string>>

interface Field {
  readonly name: string
  readonly type: string
  readonly preset: string
  readonly about: string
}

export function fieldTable(schema: z.ZodObject): string {
  const rows = fieldsOf(schema, '').map(({ name, type, preset, about }) => [
    `\`${name}\``,
    type,
    preset,
    about,
  ])
  return rows.length === 0
    ? 'No fields of its own.'
    : table(['Field', 'Type', 'Default', 'Description'], rows)
}

/** Returns the fields of an object, and of nested objects; skips the literal that tells objects apart. */
export function fieldsOf(schema: z.ZodObject, prefix: string): readonly Field[] {
  const shape: Readonly<Record<string, z.core.$ZodType>> = schema.shape
  return Object.entries(shape).flatMap(([key, field]) => {
    const { inner, preset, isOptional, about } = unwrapped(field)
    if (inner instanceof z.ZodLiteral) return []
    const name = prefix + key
    const nested = objectsIn(inner).flatMap(({ object, label }) =>
      fieldsOf(object, `${name}.`).map((field) => ({ ...field, about: label + field.about })),
    )
    return [
      { name, type: typeOf(inner), preset: preset ?? (isOptional ? absent(about) : 'required'), about },
      ...nested,
    ]
  })
}

/** Returns the preset of an optional field without a default: `see description` when its description names a default, or else `none`. */
const absent = (about: string): string => (about.includes('Default: ') ? 'see description' : 'none')

interface Unwrapped {
  /** The schema of the field, without default, optional and pipe. */
  readonly inner: z.core.$ZodType
  /** The default as a config writes it. */
  readonly preset: string | undefined
  readonly isOptional: boolean
  /** Empty when the schema has no description. */
  readonly about: string
}

function unwrapped(schema: z.core.$ZodType): Unwrapped {
  let inner = schema
  let preset: unknown
  let isOptional = false
  let about: string | undefined
  for (;;) {
    about ??= z.globalRegistry.get(inner)?.description
    if (inner instanceof z.ZodDefault || inner instanceof z.ZodPrefault) preset ??= inner.def.defaultValue
    else if (inner instanceof z.ZodOptional) isOptional = true
    else break
    inner = inner.unwrap()
  }
  const quantity = quantities.get(inner)
  const written =
    preset === undefined
      ? undefined
      : quantity?.format !== undefined && typeof preset === 'number'
        ? quantity.format(preset)
        : JSON.stringify(preset)
  return {
    inner,
    preset: written === undefined ? undefined : `\`${written}\``,
    isOptional,
    about: about ?? '',
  }
}

/** Returns the possible objects of a value, with a label if there are several. */
function objectsIn(schema: z.core.$ZodType): { readonly object: z.ZodObject; readonly label: string }[] {
  if (schema instanceof z.ZodObject) return [{ object: schema, label: '' }]
  if (!(schema instanceof z.ZodUnion)) return []
  return schema.options.flatMap((option) => {
    if (!(option instanceof z.ZodObject)) return []
    const tag = tagOf(option)
    return [{ object: option, label: tag === undefined ? '' : `\`${tag}\`: ` }]
  })
}

/** Returns the literal by which a union tells an object from others. */
function tagOf({ shape }: z.ZodObject): string | undefined {
  const literal = Object.values(shape).find((field) => field instanceof z.ZodLiteral)
  return literal === undefined ? undefined : String(literal.value)
}

/** Returns the type of a value, in words. */
function typeOf(schema: z.core.$ZodType): string {
  const quantity = quantities.get(schema)
  if (quantity !== undefined) return quantity.type
  if (schema instanceof z.ZodEnum) return or(schema.options.map((option) => `\`${option}\``))
  if (schema instanceof z.ZodLiteral) return `\`${String(schema.value)}\``
  if (schema instanceof z.ZodArray) return `list of ${typeOf(unwrapped(schema.element).inner)}`
  if (schema instanceof z.ZodObject) return tagOf(schema) === undefined ? 'object' : `\`${tagOf(schema)}\``
  if (schema instanceof z.ZodDiscriminatedUnion)
    return `object, by \`${schema.def.discriminator}\`: ${or(schema.options.map((option) => typeOf(option)))}`
  if (schema instanceof z.ZodUnion) return or(schema.options.map((option) => typeOf(option)))
  if (schema instanceof z.ZodRecord) return recordType(schema)
  if (schema instanceof z.ZodNumber) return numberType(schema)
  if (schema instanceof z.ZodString) return 'string'
  if (schema instanceof z.ZodBoolean) return 'boolean'
  // z.json() refers to itself, so it is a lazy schema.
  if (schema instanceof z.ZodUnknown || schema instanceof z.ZodLazy) return 'any JSON'
  throw new TypeError(`the pages have no words for a ${schema._zod.def.type}: see units/quantity.ts`)
}

function recordType({ valueType }: z.ZodRecord): string {
  const of = typeOf(unwrapped(valueType).inner)
  return of === 'any JSON' ? 'JSON object' : `object of ${of}s`
}

/** Returns the JSON Schema, even when stored under an id elsewhere. */
function plainJson(schema: z.ZodType): z.core.JSONSchema.BaseSchema {
  const json = z.toJSONSchema(schema)
  return Object.values(json.$defs ?? {})[0] ?? json
}

/** Returns the type with its bounds, unless they are the type's own. */
function numberType(schema: z.ZodNumber): string {
  const { type, minimum, maximum, exclusiveMinimum, exclusiveMaximum } = plainJson(schema)
  const isBound = (bound: unknown) =>
    typeof bound === 'number' && Number.isFinite(bound) && Math.abs(bound) < Number.MAX_SAFE_INTEGER
  const bounds = [
    ...(isBound(minimum) ? [`from ${minimum}`] : []),
    ...(isBound(exclusiveMinimum) ? [`above ${exclusiveMinimum}`] : []),
    ...(isBound(maximum) ? [`to ${maximum}`] : []),
    ...(isBound(exclusiveMaximum) ? [`below ${exclusiveMaximum}`] : []),
  ]
  return [type, ...bounds].join(' ')
}

const or = (words: readonly string[]): string =>
  words.length < 2 ? words.join('') : `${words.slice(0, -1).join(', ')} or ${words.at(-1)}`

export const code = (words: readonly string[]): string => words.map((word) => `\`${word}\``).join(', ')

export const list = (items: readonly string[]): string => items.map((item) => `- ${item}`).join('\n')

export const blocks = (...parts: readonly string[]): string =>
  `${parts.map((part) => part.trimEnd()).join('\n\n')}\n`

export const yaml = (value: unknown): string =>
  `\`\`\`yaml\n${stringify(value, { singleQuote: true, lineWidth: 0 })}\`\`\``

/** Returns a table with columns of equal width. */
export function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const cells = [head, ...rows].map((row) => row.map((cell) => cell.replaceAll('|', '\\|')))
  const widths = head.map((_, column) => Math.max(3, ...cells.map((row) => row[column]!.length)))
  const line = (row: readonly string[]) =>
    `| ${row.map((cell, column) => cell.padEnd(widths[column]!)).join(' | ')} |`
  const [first = [], ...others] = cells
  return [line(first), line(widths.map((width) => '-'.repeat(width))), ...others.map(line)].join('\n')
}
