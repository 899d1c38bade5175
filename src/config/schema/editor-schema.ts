import { z } from 'zod'
import { quantities } from '../../units/quantity.ts'
import { about, mapSchemas, withVariables } from '../files/json-variables.ts'
import { config } from './schema.ts'
import { spread } from './schema-walk.ts'

type Json = z.core.JSONSchema.BaseSchema

/** The JSON Schema of what people write in a config file, for editors to complete and explain. */
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
  const quantity = spread(schema)
    .map((inner) => quantities.get(inner))
    .find((found) => found !== undefined)
  const preset = schema instanceof z.ZodDefault ? schema.def.defaultValue : undefined
  if (quantity !== undefined && typeof preset === 'number') json.default = quantity.format(preset)
}

/** A block stands in the config, or in a file of its own. */
function orFile(block: Json): Json {
  if (block.type !== 'object') return block
  const { description, default: preset, ...plain } = block
  const file: Json = {
    type: 'string',
    minLength: 1,
    description: 'File with this block, relative to the one that names it.',
  }
  const elsewhere: Json = {
    type: 'object',
    properties: { file },
    required: ['file'],
    additionalProperties: false,
  }
  return { ...about({ description, default: preset }), anyOf: [plain, elsewhere] }
}
