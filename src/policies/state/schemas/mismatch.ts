import type { ErrorObject } from 'ajv'

/** The place where a value breaks its schema, and the expectation there. Holds names but no checked values. */
export interface Mismatch {
  /** A JSON Pointer; `/` for the whole value. */
  readonly path: string
  /** For example `must be integer` or `is missing`. */
  readonly expected: string
  readonly keyword: string
  /** The keyword's bound, when it is a number. */
  readonly limit: number | undefined
}

const MOST = 3
const LONGEST = 120
const MOST_CHOICES = 8

/** Returns the first different mismatches, at most 3. */
export function mismatches(errors: readonly ErrorObject[]): readonly Mismatch[] {
  const found = new Map<string, Mismatch>()
  for (const error of errors) {
    const mismatch = describe(error)
    found.set(`${mismatch.path} ${mismatch.expected}`, mismatch)
    if (found.size === MOST) break
  }
  return [...found.values()]
}

function describe({ instancePath, keyword, params, message }: ErrorObject): Mismatch {
  const { missingProperty, additionalProperty, unevaluatedProperty, allowedValues, allowedValue, limit } =
    params as Readonly<Record<string, unknown>>
  const at = (name: unknown) => {
    // Cuts the name first: a name from a caller may be megabytes long.
    const shown = String(name).slice(0, LONGEST + 1)
    return `${instancePath}/${shown.replaceAll('~', '~0').replaceAll('/', '~1')}`
  }
  const make = (path: string, expected: string): Mismatch => ({
    path: clean(path === '' ? '/' : path),
    expected: clean(expected),
    keyword,
    limit: typeof limit === 'number' ? limit : undefined,
  })
  if (missingProperty !== undefined) return make(at(missingProperty), 'is missing')
  const unknown = additionalProperty ?? unevaluatedProperty
  if (unknown !== undefined) return make(at(unknown), 'is not allowed')
  if (Array.isArray(allowedValues))
    return make(instancePath, `must be one of ${allowedValues.slice(0, MOST_CHOICES).map(json).join(', ')}`)
  if (keyword === 'const') return make(instancePath, `must be ${json(allowedValue)}`)
  return make(instancePath, message ?? `breaks ${keyword}`)
}

const json = (value: unknown): string => JSON.stringify(value) ?? ''

/** Cleans a server's name: neither long nor able to break a line. */
function clean(text: string): string {
  const bounded = text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text
  return bounded.replace(/\p{Cc}/gu, ' ')
}
