import type { z } from 'zod'

type Json = z.core.JSONSchema.BaseSchema

/** Text with a variable in it, which may stand wherever a value is expected. */
const variable: Json = { type: 'string', pattern: '\\$\\{' }

/** The same schema, which also takes `${VAR}` for numbers, words and text in a fixed form. Keys hold no variables. */
export function withVariables(json: Json): Json {
  if (json.anyOf !== undefined) {
    const branches = json.anyOf.map((branch) => (isScalar(branch) ? widen(branch) : withVariables(branch)))
    const covered = branches.some(({ type }) => type === 'string') || !branches.some(isScalar)
    return { ...json, anyOf: covered ? branches : [...branches, variable] }
  }
  if (isScalar(json)) {
    if (json.type === 'string' && json.enum === undefined && json.const === undefined) return widen(json)
    const { description, default: preset, ...plain } = json
    return { ...about({ description, default: preset }), anyOf: [plain, variable] }
  }
  const inside = { ...json }
  if (isSchema(json.items)) inside.items = withVariables(json.items)
  if (isSchema(json.additionalProperties))
    inside.additionalProperties = withVariables(json.additionalProperties)
  if (json.oneOf !== undefined) inside.oneOf = json.oneOf.map(withVariables)
  if (json.properties !== undefined) inside.properties = mapSchemas(json.properties, withVariables)
  if (json.$defs !== undefined) inside.$defs = mapSchemas(json.$defs, withVariables)
  return inside
}

/** What editors show, apart from what they check. */
export function about({
  description,
  default: preset,
}: {
  description?: string | undefined
  default?: unknown
}): Json {
  return {
    ...(description !== undefined && { description }),
    ...(preset !== undefined && { default: preset }),
  }
}

function widen(json: Json): Json {
  return json.pattern === undefined ? json : { ...json, pattern: `(?:${json.pattern})|${variable.pattern}` }
}

const isScalar = ({ type }: Json) => ['string', 'number', 'integer', 'boolean'].includes(String(type))

const isSchema = (value: unknown): value is Json =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** Changes every schema of a record of them. */
export function mapSchemas(
  record: Record<string, unknown>,
  change: (json: Json) => Json,
): Record<string, Json> {
  const entries = Object.entries(record).map(([key, value]) => [key, isSchema(value) ? change(value) : value])
  return Object.fromEntries(entries) as Record<string, Json>
}
