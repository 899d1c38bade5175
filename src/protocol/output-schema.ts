import { isObject } from './jsonrpc.ts'
import { isDeeperThan, locate } from './json-span.ts'

/** Deepest nesting of a schema that is rewritten: it is walked through by one call a level. */
const MAX_DEPTH = 200

/** Keywords whose values are data, not schemas. */
const dataKeywords = new Set(['const', 'enum', 'default', 'examples'])

/** Keywords whose values hold schemas by names that authors choose. */
const nameMaps = new Set([
  'properties',
  'patternProperties',
  '$defs',
  'definitions',
  'dependentSchemas',
  'dependencies',
])

/** Whether a tool's `outputSchema` allows for more than objects, which the legacy era does not know. */
export function isWider(outputSchema: unknown): boolean {
  return isObject(outputSchema) && outputSchema.type !== 'object'
}

/** A tool, as JSON text, in the words of the legacy era: results that may be no objects stand under `result`. */
export function legacyTool(text: string, { outputSchema }: Readonly<Record<string, unknown>>): string {
  const span = isWider(outputSchema) ? locate(text, ['outputSchema']) : undefined
  if (span === undefined) return text
  // One that is too deep to be rewritten is left out: then the result may be anything.
  const isTooDeep = isDeeperThan(MAX_DEPTH, text.slice(span.start, span.end))
  const schema = isTooDeep ? {} : (outputSchema as Record<string, unknown>)
  const wrapped = JSON.stringify(inLegacyWords(schema))
  return text.slice(0, span.start) + wrapped + text.slice(span.end)
}

/** A schema of results that may be no objects, as that of an object which holds one. */
export function inLegacyWords(schema: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return {
    ...(typeof schema.$schema === 'string' ? { $schema: schema.$schema } : {}),
    type: 'object',
    properties: { result: moved(schema, false) },
    required: ['result'],
  }
}

/** A schema whose references to its own root follow it to its new place. `byName`: its keys are names of an author. */
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

/** Whether references below resolve against this `$id`, and not against the root. */
function isBase(id: unknown): boolean {
  return id !== undefined && !(typeof id === 'string' && id.startsWith('#'))
}
