import { Ajv, type Options } from 'ajv'
import { Ajv2020 } from 'ajv/dist/2020.js'

/** The JSON Schema dialects that are understood. */
const dialects: readonly (readonly [RegExp, typeof Ajv | typeof Ajv2020])[] = [
  [/^https?:\/\/json-schema\.org\/draft\/2020-12\/schema#?$/, Ajv2020],
  [/^https?:\/\/json-schema\.org\/draft-0[67]\/schema#?$/, Ajv],
]

const judges = new Map<unknown, Ajv>()

/** The dialect that `$schema` names, 2020-12 when it names none; throws for any other. */
export function dialectOf({ $schema }: Readonly<Record<string, unknown>>): typeof Ajv | typeof Ajv2020 {
  if ($schema === undefined) return Ajv2020
  const found = dialects.find(([id]) => typeof $schema === 'string' && id.test($schema))
  if (found === undefined) throw new Error('the schema is of an unknown dialect')
  return found[1]
}

/** Throws unless the schema is one, by the words of its dialect. */
export function assertValid(schema: Readonly<Record<string, unknown>>): void {
  const Dialect = dialectOf(schema)
  let judge = judges.get(Dialect)
  if (judge === undefined) {
    const options: Options = { validateFormats: false, strict: false, logger: false }
    judge = new Dialect(options)
    judges.set(Dialect, judge)
  }
  const meta = Dialect === Ajv2020 ? judge.defaultMeta() : 'http://json-schema.org/draft-07/schema'
  if (judge.validate(meta as string, schema) !== true)
    throw new Error(`no valid schema: ${judge.errorsText()}`)
}
