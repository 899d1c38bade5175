import { _, type Ajv, type ErrorObject, type Format, type KeywordCxt } from 'ajv'
import { fullFormats } from 'ajv-formats/dist/formats.js'
import { assertValid, dialectOf } from './dialects.ts'
import { guardedRegExp } from './guarded-regexp.ts'
import { instrumented, STEPS } from './instrument.ts'
import { mismatches, type Mismatch } from './mismatch.ts'
import { charge, withSteps } from './steps.ts'
import { areUnique } from './unique.ts'

/** What came of a check; `too_costly` says nothing about the value. */
export type Finding = 'fits' | 'too_costly' | readonly Mismatch[]

export type Check = (value: unknown) => Finding

/** Steps that one check may take: some ten milliseconds for a schema that is made to be slow. */
const MAX_STEPS = 3_000_000

/** Checks of one schema that may be given up for their cost; after that it is not tried again. */
const MAX_GIVEN_UP = 20

/**
 * Compiles a schema of a stranger. Throws when it is none, or cannot be compiled by itself.
 * `all`: the check goes on after the first mismatch, to name up to three.
 */
export function compileSchema(schema: Readonly<Record<string, unknown>>, all: boolean): Check {
  // First what bounds the rest: also to judge whether it is a schema takes time that grows with it.
  const { $schema: _dialect, ...rest } = instrumented(schema)
  assertValid(schema)
  // An instance of its own: ids of strangers must not meet, and nothing may be left behind in a shared one.
  const ajv = new (dialectOf(schema))({
    strict: false,
    allErrors: all,
    meta: false,
    validateSchema: false,
    inlineRefs: false,
    // A member is what the value itself holds: what every object inherits, such as `constructor`, is none.
    ownProperties: true,
    logger: false,
    // Optimised code is no faster once V8 has seen to it, and takes four times as long to make.
    code: { regExp: guardedRegExp, optimize: false },
  })
  prepare(ajv)
  const validate = ajv.compile(rest)
  let givenUp = 0
  return (value) => {
    if (givenUp >= MAX_GIVEN_UP) return 'too_costly'
    try {
      if (withSteps(MAX_STEPS, () => validate(value))) return 'fits'
      return mismatches(validate.errors as ErrorObject[])
    } catch {
      // Too many steps, or endless recursion.
      givenUp++
      return 'too_costly'
    } finally {
      // Errors hold what they were found in.
      validate.errors = null
    }
  }
}

function prepare(ajv: Ajv): void {
  for (const [name, format] of Object.entries(fullFormats)) ajv.addFormat(name, charging(format))
  ajv.removeKeyword('uniqueItems')
  ajv.addKeyword({
    keyword: 'uniqueItems',
    type: 'array',
    schemaType: 'boolean',
    validate: (demanded: boolean, items: unknown[]) => !demanded || areUnique(items),
    error: { message: 'must not have two items that are equal' },
  })
  ajv.addKeyword({
    keyword: STEPS,
    schemaType: 'number',
    code({ gen, schema }: KeywordCxt) {
      gen.code(_`${gen.scopeValue('func', { ref: charge })}(${schema as number})`)
    },
  })
}

/** Some formats are patterns that take quadratic time. */
function charging(format: Format): Format {
  if (format instanceof RegExp) return charged((text) => format.test(text))
  if (typeof format === 'function') return charged(format)
  if (typeof format !== 'object' || format.type === 'number') return format
  const { validate } = format
  if (validate instanceof RegExp) return charged((text) => validate.test(text))
  return typeof validate === 'function' ? charged(validate as (text: string) => boolean) : format
}

function charged(test: (text: string) => boolean): Format {
  return {
    type: 'string',
    validate(text: string) {
      charge(1 + text.length ** 2 / 32)
      return test(text)
    },
  }
}
