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

/** Whether a tool's `outputSchema` allows more than objects, which the legacy era does not know. */
export function isWider(outputSchema: unknown): boolean {
  return isObject(outputSchema) && outputSchema.type !== 'object'
}

/** Returns a tool, as JSON text, for the legacy era: results that may be no objects move under `result`. */
export function legacyTool(text: string, { outputSchema }: Readonly<Record<string, unknown>>): string {
  const span = isWider(outputSchema) ? locate(text, ['outputSchema']) : undefined
  if (span === undefined) return text
  // A schema too deep to rewrite is left out: then the result may be anything.
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

/** Moves a schema's references to its own root to the new place. `byName`: the keys are author-chosen names. */
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

/** Whether references below resolve against this `$id`, not against the root. */
function isBase(id: unknown): boolean {
  return id !== undefined && !(typeof id === 'string' && id.startsWith('#'))
}
