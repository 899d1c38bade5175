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

/** The shapes accepted by clients of official SDKs. A client refuses the whole list for a single other entry. */
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

/** The shape of tools of the legacy era: every result is an object. */
const legacyTools = toolShape(objectSchema)

/** Required members: an entry without these is dropped. */
const needed: ReadonlySet<unknown> = new Set(['name', 'uri', 'uriTemplate', 'inputSchema'])

/** Members of a schema that can be removed while the schema stays. */
const dispensable: ReadonlySet<unknown> = new Set(['$schema', '$id'])

/** An entry of a list: its JSON text and parsed value. */
export interface Shaped {
  readonly text: string
  readonly value: Readonly<Record<string, unknown>>
  /** The first mended problem; undefined for a well-formed entry. */
  readonly mended?: string
}

/**
 * Returns an entry acceptable to clients of official SDKs, or the problem in words. Removes optional members when null
 * or malformed, and adds a missing member with only one possible value. `value`: the parsed `text`; `schemas`: the
 * schemas of its list; `era`: the era of the request.
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
  // Removing a null may reveal another problem of the member.
  if (left !== undefined && !needed.has(left[0])) {
    mended = withoutMember(mended, left.slice(0, 1))
    now = parseExactly(mended) as Shaped['value']
    left = faultsOf(kind, now, schemas, era)[0]
  }
  return left === undefined ? { text: mended, value: now, mended: inWords(value, first) } : inWords(now, left)
}

/** Returns the paths of malformed members. */
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

/** Whether `path` is a missing type of a tool's schema; only `object` is possible. */
function isMissingType(value: unknown, path: JsonPath): boolean {
  return path.length === 2 && path[1] === 'type' && at(value, path) === undefined
}

/**
 * Adds missing members: the key as name, and `inputSchema: {}` to a tool, accepting any arguments. Adds type `object`
 * to schemas of arguments, and of results in the legacy era.
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

/** Returns the effect of a tool by the protocol's hints; `unknown` without hints or with contradicting hints. */
export function annotatedEffect(annotations: unknown): Effect {
  if (!isObject(annotations)) return 'unknown'
  if (annotations.readOnlyHint === true) return annotations.destructiveHint === true ? 'unknown' : 'read_only'
  if (annotations.idempotentHint === true) return 'idempotent'
  return annotations.readOnlyHint === false ? 'write' : 'unknown'
}
