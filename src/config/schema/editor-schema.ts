import { z } from 'zod'
import { quantities } from '../../units/quantity.ts'
import { spread } from './schema-walk.ts'
import { config } from './schema.ts'

type Json = z.core.JSONSchema.BaseSchema

/** Returns the JSON Schema of a config file for editors, which use it for completion and help. */
export function editorSchema(): Json {
  const generated = z.toJSONSchema(config, {
    io: 'input',
    override: ({ zodSchema, jsonSchema }) => writeDefault(zodSchema, jsonSchema),
  })
  const { $schema, properties = {}, ...rest } = withVariables(generated)
  return {
    ...($schema && { $schema }),
    title: 'Breakwater config',
    ...rest,
    properties: mapSchemas(properties, orFile),
  }
}

/** Writes a default duration or size with its unit. */
function writeDefault(schema: z.core.$ZodType, json: Json): void {
  const format = spread(schema)
    .map((inner) => quantities.get(inner)?.format)
    .find((found) => found !== undefined)
  const preset = schema instanceof z.ZodDefault ? schema.def.defaultValue : undefined
  if (format !== undefined && typeof preset === 'number') json.default = format(preset)
}

/** Returns the schema of a block that may also be `{ file: … }`. */
function orFile(block: Json): Json {
  if (block.type !== 'object') return block
  const { description, default: preset, ...plain } = block
  const file: Json = {
    type: 'string',
    minLength: 1,
    description: 'File with this block, relative to the file that names it.',
  }
  const elsewhere: Json = {
    type: 'object',
    properties: { file },
    required: ['file'],
    additionalProperties: false,
  }
  return { ...about({ description, default: preset }), anyOf: [plain, elsewhere] }
}

/** Schema of a text with a variable, which may replace any value. */
const variable: Json = { type: 'string', pattern: '\\$\\{' }

/**
 * Returns the schema with `${VAR}` also allowed for numbers, enums and text in a fixed form. Keys cannot contain
 * variables.
 */
function withVariables(json: Json): Json {
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

/** Returns the parts of a schema that editors show, apart from the parts that editors check. */
function about({
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

function mapSchemas(record: Record<string, unknown>, change: (json: Json) => Json): Record<string, Json> {
  const entries = Object.entries(record).map(([key, value]) => [key, isSchema(value) ? change(value) : value])
  return Object.fromEntries(entries) as Record<string, Json>
}
