import { isObject } from './jsonrpc.ts'
import { isDeeperThan, locate } from './json-span.ts'

/** Deepest schema that is rewritten, in levels, because the walk is recursive. */
const MAX_DEPTH = 200

/** Keywords whose values are data, not schemas. */
const dataKeywords = new Set(['const', 'enum', 'default', 'examples'])

/** Keywords whose values map author-chosen names to schemas. */
const nameMaps = new Set([
  'properties',
  'patternProperties',
  '$defs',
  'definitions',
  'dependentSchemas',
  'dependencies',
])

/** Whether a tool's `outputSchema` allows values other than objects, which the legacy era does not support. */
export function isWider(outputSchema: unknown): boolean {
  return isObject(outputSchema) && outputSchema.type !== 'object'
}

/**
 * Returns a tool, as JSON text, for the legacy era. An output schema that allows values other than objects becomes the
 * schema of a `result` member.
 */
export function legacyTool(text: string, { outputSchema }: Readonly<Record<string, unknown>>): string {
  const span = isWider(outputSchema) ? locate(text, ['outputSchema']) : undefined
  if (span === undefined) return text
  // An empty schema, which allows any value, replaces a schema that is too deep to rewrite.
  const isTooDeep = isDeeperThan(MAX_DEPTH, text.slice(span.start, span.end))
  const schema = isTooDeep ? {} : (outputSchema as Record<string, unknown>)
  const wrapped = JSON.stringify(inLegacyWords(schema))
  return text.slice(0, span.start) + wrapped + text.slice(span.end)
}

/** Returns a schema of an object whose `result` has the given schema. */
export function inLegacyWords(schema: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return {
    ...(typeof schema.$schema === 'string' ? { $schema: schema.$schema } : {}),
    type: 'object',
    properties: { result: moved(schema, false) },
    required: ['result'],
  }
}

/**
 * Adjusts a schema's references to its own root, which moves to `#/properties/result`. `byName`: the keys are
 * author-chosen names, not keywords.
 */
function moved(node: unknown, byName: boolean): unknown {
  if (Array.isArray(node)) return node.map((item) => moved(item, false))
  if (!isObject(node) || (!byName && isBase(node.$id))) return node
  return Object.fromEntries(Object.entries(node).map(([key, value]) => [key, movedValue(key, value, byName)]))
}

function movedValue(key: string, value: unknown, byName: boolean): unknown {
  if (byName) return moved(value, false)
  if ((key === '$ref' || key === '$dynamicRef') && typeof value === 'string') {
    return value === '#' || value.startsWith('#/') ? `#/properties/result${value.slice(1)}` : value
  }
  return dataKeywords.has(key) ? value : moved(value, nameMaps.has(key))
}

/** Whether references inside a schema with this `$id` resolve against the `$id`, not against the root. */
function isBase(id: unknown): boolean {
  return id !== undefined && !(typeof id === 'string' && id.startsWith('#'))
}
