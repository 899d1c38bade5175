import { isObject } from '../../../protocol/jsonrpc.ts'

/** The added keyword that charges for each check of a subschema. */
export const STEPS = 'breakwater-steps'

const MAX_DEPTH = 64

/** Most subschemas; generated code grows with them, and compiling it blocks the process. */
const MAX_SUBSCHEMAS = 1_000

/**
 * Most keywords, and names in their lists, with generated code: some 50 microseconds each, during which nothing else
 * runs. Descriptions and the like cost nothing and do not count.
 */
const MAX_CHECKS = 2_000

/** Keywords without generated code. */
const silent = new Set([
  '$schema',
  '$id',
  '$comment',
  '$defs',
  'definitions',
  'title',
  'description',
  'default',
  'examples',
  'deprecated',
  'readOnly',
  'writeOnly',
  'contentEncoding',
  'contentMediaType',
])

/** Keywords whose values are data, not schemas. */
const data = new Set(['const', 'enum', 'default', 'examples', 'required', 'type'])

/** Keywords whose values hold schemas under author-chosen names. */
const byNames = new Set([
  'properties',
  'patternProperties',
  '$defs',
  'definitions',
  'dependentSchemas',
  'dependentRequired',
  'dependencies',
])

/**
 * Returns a copy of a schema whose subschemas charge their cost: references multiply, and 40 small definitions can ask
 * for 2^40 checks. Throws when the schema is too deep, or too large to compile while others wait.
 */
export function instrumented(schema: Readonly<Record<string, unknown>>): Record<string, unknown> {
  let subschemas = 0
  let checks = 0
  const ignoresSiblings = ignoring.test(String(schema.$schema))

  function count(more: number): void {
    checks += more
    if (checks > MAX_CHECKS) throw new Error(`the schema asks for more than ${MAX_CHECKS} checks`)
  }

  function copy(given: unknown, depth: number): unknown {
    if (depth > MAX_DEPTH) throw new Error(`the schema is nested deeper than ${MAX_DEPTH}`)
    if (Array.isArray(given)) return given.map((item) => member(item, depth + 1))
    if (!isObject(given)) return given
    const node = ignoresSiblings && typeof given.$ref === 'string' ? withoutSiblings(given) : given
    if (++subschemas > MAX_SUBSCHEMAS) throw new Error(`more than ${MAX_SUBSCHEMAS} subschemas`)
    const entries = Object.entries(readable(node))
      // Drops `$async`: an asynchronous check would return a promise, which is neither a failure nor a success.
      .filter(([key]) => key !== '$async' && key !== STEPS)
      .map(([key, value]): [string, unknown] => [key, copyValue(key, value, depth + 1)])
    const steps = stepsOf(node)
    if (steps !== undefined) entries.push([STEPS, steps])
    return Object.fromEntries(entries)
  }

  /** Copies one of several subschemas; the subschemas `false` and `true` have generated code as well. */
  function member(node: unknown, depth: number): unknown {
    if (typeof node === 'boolean') count(1)
    return copy(node, depth)
  }

  function copyValue(key: string, value: unknown, depth: number): unknown {
    if (!silent.has(key)) count(1 + costOf(key, value))
    if (data.has(key)) return value
    if (!byNames.has(key) || !isObject(value)) return copy(value, depth)
    return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, member(inner, depth + 1)]))
  }

  return copy(schema, 0) as Record<string, unknown>
}

/** Drafts 06 and 07 ignore the siblings of a reference. */
const ignoring = /\/draft-0[67]\//

/** Returns a reference with only those siblings, such as `$defs`, that other references may name. */
function withoutSiblings(node: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  return Object.fromEntries(Object.entries(node).filter(([key]) => key === '$ref' || silent.has(key)))
}

/** Moves a member `__proto__` from `properties` to the patterns: Ajv ignores the name only in `properties`. */
function readable(node: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  const { properties, patternProperties } = node
  if (!isObject(properties) || !Object.hasOwn(properties, '__proto__')) return node
  const { ['__proto__']: ofProto, ...others } = properties
  const patterns = isObject(patternProperties) ? patternProperties : {}
  return { ...node, properties: others, patternProperties: { ...patterns, '^__proto__$': ofProto } }
}

/** Returns the cost of compiling a keyword, besides the keyword itself and the subschemas in it. */
function costOf(key: string, value: unknown): number {
  if (key === 'enum') return Array.isArray(value) ? comparisons(value) : 0
  // Each name, and each type, has its own code.
  if (key === 'required') return Array.isArray(value) ? value.length : 0
  if (key === 'type') return Array.isArray(value) ? value.length - 1 : 0
  if (key === 'pattern') return typeof value === 'string' ? classes(value) : 0
  // A single condition contains all patterns, and its time grows with their square.
  if (key === 'patternProperties') {
    const patterns = isObject(value) ? Object.keys(value) : []
    return patterns.reduce((cost, pattern) => cost + classes(pattern), patterns.length ** 2 / 128)
  }
  if ((key !== 'dependencies' && key !== 'dependentRequired') || !isObject(value)) return 0
  let cost = 0
  // The code for each name of a list contains the whole list.
  for (const names of Object.values(value))
    cost += Array.isArray(names) ? 1 + names.length + names.length ** 2 / 64 : 1
  return cost
}

/** Creating a regular expression is slow for classes of Unicode such as `\\p{L}`. */
const classes = (pattern: string): number => 2 * (pattern.split(/\\p/i).length - 1)

/** Fewer choices than this are compared singly, with code for each; see `loopEnum` of Ajv. */
const LOOPED = 200

/** Below `LOOPED`, four choices cost as much as a keyword. Draft 07's validation compares all pairs of choices. */
function comparisons(choices: readonly unknown[]): number {
  const size = choices.some((choice) => typeof choice === 'object') ? JSON.stringify(choices).length / 8 : 1
  const code = choices.length < LOOPED ? choices.length / 4 : 0
  return code + (choices.length * Math.max(size, choices.length)) / 8_000
}

/** The steps for checking a value against a subschema, without nested subschemas. */
export interface Steps {
  /** Steps for each check, whatever the value. */
  readonly once: number
  /** Steps for each character, element or member that the subschema's own code looks at. */
  readonly perCharacter: number
  readonly perElement: number
  readonly perMember: number
}

/** The steps of a reference, which is a function call; all other code is generated in place. */
const REFERENCE = 20

/** The measured steps of Ajv's loops: per character, per element, and per member with its name. */
const CHARACTER = 0.5
const ELEMENT = 8
const MEMBER = 32

/** Keywords that look at each character, each element, or each member of a value. */
const ofCharacters = ['minLength', 'maxLength']
const ofElements = ['items', 'additionalItems', 'contains', 'unevaluatedItems']
const ofMembers = [
  'additionalProperties',
  'propertyNames',
  'unevaluatedProperties',
  'minProperties',
  'maxProperties',
]

/** Returns the steps of a subschema; undefined for plain bounds, which cost almost nothing. */
function stepsOf(node: Readonly<Record<string, unknown>>): Steps | undefined {
  const count = (keywords: readonly string[]) =>
    keywords.filter((keyword) => Object.hasOwn(node, keyword)).length
  const { patternProperties } = node
  const patterns = isObject(patternProperties) ? Object.keys(patternProperties).length : 0
  const steps = {
    once: weight(node),
    perCharacter: CHARACTER * count(ofCharacters),
    perElement: ELEMENT * count(ofElements),
    perMember: MEMBER * (count(ofMembers) + patterns),
  }
  return Object.values(steps).some((some) => some > 0) ? steps : undefined
}

function weight(node: Readonly<Record<string, unknown>>): number {
  const values = Object.values(node)
  if (!values.some((value) => typeof value === 'object') && !isReference(node)) return 0
  let steps = values.length + (isReference(node) ? REFERENCE : 0)
  // Each name, and each choice, is checked separately.
  for (const [key, value] of Object.entries(node)) {
    if (key === 'const') steps += comparison(value)
    else if (key === 'enum' && Array.isArray(value))
      steps += value.reduce((sum: number, choice) => sum + 1 + comparison(choice), 0)
    else if (Array.isArray(value)) steps += value.length
    else if (byNames.has(key) && !silent.has(key) && isObject(value)) steps += Object.keys(value).length
  }
  return steps
}

/** Returns the most steps for comparing a value with a schema value, member by member. */
const comparison = (value: unknown): number =>
  typeof value === 'object' && value !== null ? 2 * JSON.stringify(value).length : 0

function isReference({ $ref, $dynamicRef }: Readonly<Record<string, unknown>>): boolean {
  return $ref !== undefined || $dynamicRef !== undefined
}
