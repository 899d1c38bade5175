import { _, Ajv, Name, type ErrorObject, type Format, type KeywordCxt, type Options } from 'ajv'
import { fullFormats } from 'ajv-formats/dist/formats.js'
import { Ajv2020 } from 'ajv/dist/2020.js'
import { hash } from 'node:crypto'
import { z } from 'zod'
import { canonicalJson } from '../../../protocol/canonical-json.ts'
import { instrumented, STEPS, type Steps } from './instrument.ts'
import { type Mismatch, mismatches } from './mismatch.ts'
import { hopeless, linear, type PatternCost, patternCost } from './pattern-cost.ts'
import {
  affords,
  type Allowance,
  charge,
  chargeFor,
  type CpuTime,
  MISMATCHING,
  MISMATCHING_IN_UNION,
  processCpu,
  withSteps,
} from './steps.ts'

/** The result of a check. `too_costly` says nothing about the value: only a part was checked, and this part fits. */
type CheckResult = 'fits' | 'too_costly' | readonly Mismatch[]

export type Check = (value: unknown) => CheckResult

/** The limits of a check: the steps are some ten milliseconds of optimised code. */
const ALLOWANCE: Allowance = { steps: 3_000_000, texts: 3_000_000, cpuMs: 30 }

/** A schema is costly after this many checks in a row were given up for their cost. */
const MAX_GIVEN_UP = 20

/**
 * Against a costly schema only each hundredth value is checked, until a check completes: perhaps only some values are
 * costly.
 */
const ONE_OF = 100

/** Compiles a schema; throws when invalid or not self-contained. `all`: names up to three mismatches, not only one. */
export function compileSchema(
  schema: Readonly<Record<string, unknown>>,
  all: boolean,
  cpu: CpuTime = processCpu,
): Check {
  // The limits are checked first: validating the schema also takes time that grows with its size.
  const { $schema: _dialect, ...rest } = instrumented(schema)
  assertValid(schema)
  // Uses its own instance: ids of different servers must not meet, and a shared instance would accumulate state.
  const ajv = new (dialectOf(schema))({
    strict: false,
    allErrors: all,
    meta: false,
    validateSchema: false,
    inlineRefs: false,
    // Only the value's own members count, not inherited ones such as `constructor`.
    ownProperties: true,
    // Makes 19.99 a multiple of 0.01, although neither is an exact binary fraction.
    multipleOfPrecision: 6,
    logger: false,
    // Optimised code is no faster once V8 has optimised it, and takes four times as long to make.
    code: { regExp: boundedRegExp, optimize: false },
  })
  prepare(ajv)
  const validate = ajv.compile(rest)
  const isCertain = !demandsMismatches(schema)
  let givenUp = 0
  let passed = 0
  return (value) => {
    if (givenUp >= MAX_GIVEN_UP && ++passed % ONE_OF !== 0) return 'too_costly'
    try {
      const { result: fits, assumed } = withSteps(ALLOWANCE, cpu, () => validate(value))
      givenUp = 0
      if (assumed && (fits || !isCertain)) return 'too_costly'
      return fits ? 'fits' : mismatches(validate.errors as ErrorObject[])
    } catch {
      // Too many steps, or endless recursion.
      givenUp++
      return 'too_costly'
    } finally {
      // Errors hold references to the checked value.
      validate.errors = null
    }
  }
}

/** Keywords that can make a value wrong because a text matches. */
const inverting = new Set(['not', 'oneOf', 'if', 'patternProperties', 'maxContains'])

/** Returns whether the assumption that a text matches may make a right value wrong. */
function demandsMismatches(schema: unknown): boolean {
  if (typeof schema !== 'object' || schema === null) return false
  return Object.entries(schema).some(([key, inner]) => inverting.has(key) || demandsMismatches(inner))
}

function prepare(ajv: Ajv): void {
  for (const [name, format] of Object.entries(formats)) ajv.addFormat(name, charging(format, tolerated[name]))
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
    schemaType: 'object',
    code({ gen, schema, data, it }: KeywordCxt) {
      const { once, perCharacter, perElement, perMember } = schema as Steps
      const steps = _`${once}, ${perCharacter}, ${perElement}, ${perMember}`
      // The name of the mismatch counter in Ajv's generated code.
      const errors = new Name('errors')
      const times = it.opts.allErrors === true ? MISMATCHING : MISMATCHING_IN_UNION
      gen.code(
        _`${gen.scopeValue('func', { ref: chargeFor })}(${data}, ${steps}, ${errors} > 0 ? ${times} : 1)`,
      )
    },
  })
  first(ajv.RULES, STEPS)
}

/**
 * Makes a keyword run first. Generated code returns at the first mismatch, and every subschema must charge its cost
 * before.
 */
function first({ rules }: Ajv['RULES'], keyword: string): void {
  const group = rules.find(({ type }) => type === undefined)!
  const at = group.rules.findIndex((rule) => rule.keyword === keyword)
  rules.unshift({ rules: group.rules.splice(at, 1) })
}

type Tolerance = (text: string, test: (text: string) => boolean) => boolean

const asAscii: Tolerance = (text, test) => test(text.replace(/[^\0-\x7f]/g, 'x'))

/**
 * Texts that many programs write although a format forbids them: parts of a second in a duration, letters outside
 * ASCII, any URL browsers accept. In draft 2020-12, formats describe and do not decide, so these texts count as valid.
 */
const tolerated: Readonly<Record<string, Tolerance>> = {
  duration: (text, test) => test(text.replace(/(\d)[.,]\d+(?=S$)/, '$1')),
  email: asAscii,
  uri: (text) => URL.canParse(text),
  url: (text) => URL.canParse(text),
  'uri-reference': asAscii,
}

/** The formats, with optional time zones: programs in Python omit the zone of a local time. */
const formats = {
  ...fullFormats,
  'date-time': fullFormats['iso-date-time'],
  time: fullFormats['iso-time'],
}

/** Wraps a format with a charge for its cost: some formats are patterns that take quadratic time. */
function charging(format: Format, tolerates: Tolerance = () => false): Format {
  const tested = (test: (text: string) => boolean) => charged((text) => test(text) || tolerates(text, test))
  if (format instanceof RegExp) return tested((text) => format.test(text))
  if (typeof format === 'function') return tested(format)
  if (typeof format !== 'object' || format.type === 'number') return format
  const { validate } = format
  if (validate instanceof RegExp) return tested((text) => validate.test(text))
  return typeof validate === 'function' ? tested(validate as (text: string) => boolean) : format
}

function charged(test: (text: string) => boolean): Format {
  return {
    type: 'string',
    validate(text: string) {
      return !affords(1 + text.length ** 2 / 32) || test(text)
    },
  }
}

const dialects: readonly (readonly [RegExp, typeof Ajv | typeof Ajv2020])[] = [
  [/^https?:\/\/json-schema\.org\/draft\/2020-12\/schema#?$/, Ajv2020],
  [/^https?:\/\/json-schema\.org\/draft-0[67]\/schema#?$/, Ajv],
]

const judges = new Map<unknown, Ajv>()

/** Returns the dialect named by `$schema`, 2020-12 by default; throws for any other. */
function dialectOf({ $schema }: Readonly<Record<string, unknown>>): typeof Ajv | typeof Ajv2020 {
  if ($schema === undefined) return Ajv2020
  const found = dialects.find(([id]) => typeof $schema === 'string' && id.test($schema))
  if (found === undefined) throw new Error('the schema is of an unknown dialect')
  return found[1]
}

function assertValid(schema: Readonly<Record<string, unknown>>): void {
  const Dialect = dialectOf(schema)
  let judge = judges.get(Dialect)
  if (judge === undefined) {
    const options: Options = { validateFormats: false, strict: false, logger: false }
    judge = new Dialect(options)
    judges.set(Dialect, judge)
  }
  const meta = Dialect === Ajv2020 ? judge.defaultMeta() : 'http://json-schema.org/draft-07/schema'
  if (judge.validate(meta as string, schema) !== true)
    throw new Error(`invalid schema: ${judge.errorsText()}`)
}

/** Returns whether no two items are equal as JSON; in a single pass, because comparing all pairs takes too long. */
function areUnique(items: readonly unknown[]): boolean {
  const seen = new Set<unknown>()
  for (const item of items) {
    const text = typeof item === 'object' ? textOf(item) : typeof item === 'string' ? `"${item}` : undefined
    const key = text === undefined ? item : comparable(text)
    if (seen.has(key)) return false
    seen.add(key)
    charge(1)
  }
  return true
}

/** Longest text compared directly, in characters; above 16,383, V8 at first treats equally long texts as alike. */
const COMPARED = 1_024

function comparable(text: string): string {
  charge(text.length / (text.length > COMPARED ? 1 : 16))
  return text.length > COMPARED ? hash('sha256', text, 'base64') : text
}

/**
 * Returns an item as canonical JSON text, and charges for reading it. Throws when the item nests too deep; the check is
 * then given up.
 */
function textOf(item: unknown): string {
  const text = canonicalJson(item, { visit: () => charge(1) })
  if (text === undefined) throw new RangeError('an item nests too deep')
  return text
}

/** Longest pattern to try, in characters. */
const MAX_PATTERN = 1_000

const { regexes } = z

/**
 * Patterns of zod-based servers for dates, addresses and ids: known to be fast, although their estimated cost is high.
 */
const harmless: ReadonlySet<string> = new Set(
  [
    ...Object.values(regexes).filter((known) => known instanceof RegExp),
    ...[{}, { offset: true }, { local: true }].map((options) => regexes.datetime(options)),
    ...[undefined, 1, 2, 3, 4, 5, 6, 7, 8].map((version) => regexes.uuid(version)),
    regexes.time({}),
  ].map(({ source }) => source),
)

/**
 * A server's pattern. Charges its maximum cost before each match. A pattern of exponential time is thus never tried,
 * and a pattern of polynomial time only on short texts; an untried text counts as matching.
 */
class BoundedRegExp {
  readonly #pattern: string
  /** Undefined for an untried pattern: creating it may take seconds. */
  readonly #regexp: RegExp | undefined
  readonly #cost: PatternCost

  constructor(pattern: string, flags: string) {
    this.#pattern = pattern
    const isTried = pattern.length <= MAX_PATTERN || harmless.has(pattern)
    this.#regexp = isTried ? tolerant(pattern, flags) : undefined
    this.#cost = harmless.has(pattern) ? linear : isTried ? patternCost(pattern) : hopeless
  }

  test(text: string): boolean {
    const { steps, degree } = this.#cost
    return (
      !affords(steps * (text.length + 1) ** degree) || this.#regexp === undefined || this.#regexp.test(text)
    )
  }

  /** Returns the pattern; Ajv compares patterns by this text. */
  toString(): string {
    return this.#pattern
  }
}

/** Compiles a pattern, if necessary without Unicode mode, in which needless escapes are an error. */
function tolerant(pattern: string, flags: string): RegExp {
  try {
    return new RegExp(pattern, flags)
  } catch {
    return new RegExp(pattern)
  }
}

const boundedRegExp = Object.assign(
  (pattern: string, flags: string): BoundedRegExp => new BoundedRegExp(pattern, flags),
  { code: 'boundedRegExp' },
)
