import { z } from 'zod'
import type { Effect } from '../mesh/policy.ts'
import { isObject } from '../protocol/jsonrpc.ts'
import {
  type JsonPath,
  locate,
  prepending,
  prependMember,
  splice,
  withoutMember,
} from '../protocol/json-span.ts'
import { parseExactly } from '../protocol/json-parse.ts'
import type { ClientSchemas } from './client-schema.ts'
import { kinds, type ListKind } from '../protocol/lists.ts'
import type { Era } from '../protocol/versions.ts'

const text = z.string()
const hint = z.boolean().optional()
const icon = z.looseObject({
  src: text,
  mimeType: text.optional(),
  sizes: z.array(text).optional(),
  theme: z.enum(['light', 'dark']).optional(),
})
const common = {
  title: text.optional(),
  description: text.optional(),
  icons: z.array(icon).optional(),
  _meta: z.looseObject({}).optional(),
}
const content = {
  ...common,
  name: text,
  mimeType: text.optional(),
  annotations: z
    .looseObject({
      audience: z.array(z.enum(['user', 'assistant'])).optional(),
      priority: z.number().min(0).max(1).optional(),
      lastModified: z.iso.datetime({ offset: true }).optional(),
    })
    .optional(),
}
const members = {
  $schema: text.optional(),
  properties: z.record(z.string(), z.looseObject({})).optional(),
  required: z.array(text).optional(),
}

const objectSchema = z.looseObject({ ...members, type: z.literal('object') })

const toolShape = (outputSchema: z.ZodType) =>
  z.looseObject({
    ...common,
    name: text,
    inputSchema: objectSchema,
    outputSchema: outputSchema.optional(),
    annotations: z
      .looseObject({
        title: text.optional(),
        readOnlyHint: hint,
        destructiveHint: hint,
        idempotentHint: hint,
        openWorldHint: hint,
      })
      .optional(),
    execution: z
      .looseObject({ taskSupport: z.enum(['required', 'optional', 'forbidden']).optional() })
      .optional(),
  })

/** The shapes that the clients of official SDKs accept. One entry of another shape, and they refuse the whole list. */
const shapes: Readonly<Record<ListKind, z.ZodType>> = {
  tools: toolShape(z.looseObject(members)),
  prompts: z.looseObject({
    ...common,
    name: text,
    arguments: z
      .array(z.looseObject({ name: text, description: text.optional(), required: z.boolean().optional() }))
      .optional(),
  }),
  resources: z.looseObject({ ...content, uri: text, size: z.number().optional() }),
  resourceTemplates: z.looseObject({ ...content, uriTemplate: text }),
}

/** The shape of tools of the legacy era, in which every result is an object. */
const legacyTools = toolShape(objectSchema)

/** Members without which an entry is none. */
const needed: ReadonlySet<unknown> = new Set(['name', 'uri', 'uriTemplate', 'inputSchema'])

/** Members that may go without what they stand in. */
const dispensable: ReadonlySet<unknown> = new Set(['$schema', '$id'])

/** An entry of a list: its JSON text and what it says. */
export interface Shaped {
  readonly text: string
  readonly value: Readonly<Record<string, unknown>>
  /** The first fault that was mended; undefined for an entry that was well-formed. */
  readonly mended?: string
}

/**
 * An entry that the clients of official SDKs accept; or in words why there is none. Members that are null or malformed and need not be
 * there go, and a member that is missing comes where there is but one thing to say. `value`: the value of `text`; `schemas`: those of its list;
 * `era`: in which the server was asked.
 */
export function wellFormed(
  kind: ListKind,
  text: string,
  value: unknown,
  schemas: ClientSchemas,
  era: Era,
): Shaped | string {
  if (!isObject(value)) return 'it is no object'
  const wrong = faultsOf(kind, value, schemas, era)
  const [first] = wrong
  if (first === undefined) return { text, value }
  let mended = text
  for (const path of wrong) {
    if (at(value, path) === null || dispensable.has(path[1])) mended = withoutMember(mended, path)
    else if (!needed.has(path[0]) && !isMissingType(value, path))
      mended = withoutMember(mended, path.slice(0, 1))
  }
  mended = completed(kind, mended, era)
  let now = parseExactly(mended) as Shaped['value']
  let [left] = faultsOf(kind, now, schemas, era)
  // Without its nulls a member may show another fault.
  if (left !== undefined && !needed.has(left[0])) {
    mended = withoutMember(mended, left.slice(0, 1))
    now = parseExactly(mended) as Shaped['value']
    left = faultsOf(kind, now, schemas, era)[0]
  }
  return left === undefined ? { text: mended, value: now, mended: inWords(value, first) } : inWords(now, left)
}

/** The paths of what is not as it should be. */
function faultsOf(kind: ListKind, value: Shaped['value'], schemas: ClientSchemas, era: Era): JsonPath[] {
  const shape = kind === 'tools' && era === 'legacy' ? legacyTools : shapes[kind]
  const { error } = shape.safeParse(value)
  const wrong = error === undefined ? [] : error.issues.map(({ path }) => path as JsonPath)
  const { outputSchema } = value
  if (kind !== 'tools' || !isObject(outputSchema) || wrong.some(([member]) => member === 'outputSchema'))
    return wrong
  const fault = schemas.faultOf(outputSchema)
  return fault === undefined ? wrong : [...wrong, ['outputSchema', ...fault]]
}

/** Whether a schema of a tool does not say its type, which can be but one. */
function isMissingType(value: unknown, path: JsonPath): boolean {
  return path.length === 2 && path[1] === 'type' && at(value, path) === undefined
}

/**
 * An entry without a name is named by its key, and a tool that says nothing of its arguments takes any. Arguments are objects, and so
 * are results in the legacy era: a schema without a type gets this one.
 */
function completed(kind: ListKind, text: string, era: Era): string {
  const entry = parseExactly(text) as Shaped['value']
  const { name, [kinds[kind].key]: key } = entry
  if (kind !== 'tools')
    return name === undefined && typeof key === 'string'
      ? prependMember(text, 'name', JSON.stringify(key))
      : text
  if (entry.inputSchema === undefined) return completed(kind, prependMember(text, 'inputSchema', '{}'), era)
  const members = era === 'legacy' ? ['inputSchema', 'outputSchema'] : ['inputSchema']
  const edits = members.flatMap((member) => {
    const schema = entry[member]
    const span = isObject(schema) && schema.type === undefined ? locate(text, [member]) : undefined
    return span === undefined ? [] : [prepending(text, span.start, 'type', '"object"')]
  })
  return splice(text, edits)
}

function inWords(value: unknown, path: JsonPath): string {
  if (path.length === 1 && path[0] === 'outputSchema' && isObject(at(value, path)))
    return 'outputSchema does not compile, or is too long to be compiled'
  const found = at(value, path)
  return `${path.join('.')} ${found === undefined ? 'is missing' : found === null ? 'is null' : 'is malformed'}`
}

function at(value: unknown, path: JsonPath): unknown {
  let found = value
  for (const step of path)
    found =
      isObject(found) || Array.isArray(found) ? (found as Record<string | number, unknown>)[step] : undefined
  return found
}

/** The effect of a tool by its annotations, the protocol's hints. Without hints a tool may do anything; so may a tool with contradicting hints. */
export function annotatedEffect(annotations: unknown): Effect {
  if (!isObject(annotations)) return 'unknown'
  if (annotations.readOnlyHint === true) return annotations.destructiveHint === true ? 'unknown' : 'read_only'
  if (annotations.idempotentHint === true) return 'idempotent'
  return annotations.readOnlyHint === false ? 'write' : 'unknown'
}
