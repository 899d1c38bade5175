import { z } from 'zod'
import { suggest } from '../../units/suggest.ts'
import { type Origins, type ConfigPath, formatPath } from '../files/places.ts'
import { writtenServers } from '../files/server-files.ts'
import { isPlainMap, slugOf } from '../schema/server-names.ts'
import { objectsOf, schemasAt, secrecyAt, spread } from '../schema/schema-walk.ts'
import { looksLikeKey, redactUrls } from '../secrets/redact-text.ts'
import type { Secrecy } from '../secrets/secrets.ts'
import type { ConfigIssue } from './issues.ts'

/** A config that was read, and facts to check the config against. */
interface Explained {
  readonly schema: z.core.$ZodType
  readonly value: unknown
  readonly origins: Origins
}

/**
 * Maximum number of explained problems, and of unknown keys per map. Nobody reads more, and each explanation takes
 * time.
 */
const MOST_EXPLAINED = 500
const MOST_KEYS = 100

/**
 * Returns Breakwater's messages for zod's issues: the place, the value found, and the values allowed. Never shows a
 * secret.
 */
export function explain(issues: readonly z.core.$ZodIssue[], about: Explained): ConfigIssue[] {
  const meant = new Set<string>()
  const explained = leafIssues(issues.slice(0, MOST_EXPLAINED)).flatMap((issue) => {
    const path = issue.path.map((key) => (typeof key === 'number' ? key : String(key)))
    switch (issue.code) {
      case 'unrecognized_keys':
        return issue.keys
          .slice(0, MOST_KEYS)
          .map((key) => at(about, [...path, key], 'key', unknownKey(about, path, key, meant)))
      case 'invalid_key':
        return [invalidKey(about, path, issue)]
      default:
        return [at(about, path, 'value', message(about, path, issue))]
    }
  })
  const seen = new Set<string>()
  return explained.filter(({ path, message }) => {
    const said = seen.has(path)
    seen.add(path)
    // Keeps one issue per place, and does not also report a misspelt key as missing.
    return !said && !(meant.has(path) && message.startsWith('missing'))
  })
}

function at({ origins }: Explained, path: ConfigPath, place: 'key' | 'value', text: string): ConfigIssue {
  return { severity: 'error', path: formatPath(path), message: text, ...origins.locate(path, place) }
}

function unknownKey({ schema, value }: Explained, path: ConfigPath, key: string, meant: Set<string>): string {
  const objects = objectsOf(schemasAt(schema, path))
  const held = heldAt(value, path)
  const field = fieldAround(objects, held, key)
  if (field !== undefined) {
    meant.add(formatPath([...path, field.name]))
    return `"${key}" is a key of "${field.name}": write ${field.name}: ${inFlow(field.example)}`
  }
  const other = objects.find(({ shape }) => Object.hasOwn(shape, key))
  if (other !== undefined) return `"${key}" belongs to another kind of entry (${titleOf(other)})`
  const known = [...new Set(objects.flatMap(({ shape }) => Object.keys(shape)))]
  const synonym = Object.hasOwn(synonyms, key) ? synonyms[key]! : ''
  const guess = known.includes(synonym) ? synonym : suggest(key, known)
  if (guess !== undefined) {
    meant.add(formatPath([...path, guess]))
    return `unknown key "${key}"; did you mean "${guess}"?`
  }
  if (key.startsWith('x-')) return `unknown key "${key}"; define the anchor at its first use`
  return `unknown key "${key}"; ${known.length === 0 ? 'none is allowed' : `allowed are ${known.join(', ')}`}`
}

interface Field {
  readonly name: string
  readonly example: Readonly<Record<string, unknown>>
}

/** Returns the field whose example contains `key`, among the fields of objects with the same kind as `held`. */
function fieldAround(objects: readonly z.ZodObject[], held: unknown, key: string): Field | undefined {
  if (!isPlainMap(held)) return undefined
  for (const { shape } of objects) {
    const fields = Object.entries<z.core.$ZodType>(shape)
    const isOfItsKind = fields.every(
      ([name, schema]) => !(schema instanceof z.ZodLiteral) || schema.values.has(held[name] as never),
    )
    if (!isOfItsKind) continue
    for (const [name, schema] of fields) {
      const example = exampleIn(spread(schema))
      if (example !== undefined && Object.hasOwn(example, key)) return { name, example }
    }
  }
  return undefined
}

const heldAt = (value: unknown, path: ConfigPath) =>
  path.reduce<unknown>((inside, key) => (inside as Record<string, unknown> | undefined)?.[key], value)

/** Keys of other tools, with our keys of the same meaning. */
const synonyms: Record<string, string> = { maxAttempts: 'maxRetries', failureRate: 'ratio', maxDelay: 'cap' }

const titleOf = (schema: z.core.$ZodType) => z.globalRegistry.get(schema)?.title ?? 'see the reference'

function invalidKey(about: Explained, path: ConfigPath, issue: z.core.$ZodIssueInvalidKey): ConfigIssue {
  const text = issue.issues[0]?.message ?? 'expected another name'
  // If the user forgot the name, the secret itself is the key, so the message must not show it.
  if (secrecyAt(about.schema, path) !== undefined) {
    const { origins } = about
    return {
      severity: 'error',
      path: formatPath(path.slice(0, -1)),
      message: text,
      ...origins.locate(path, 'key'),
    }
  }
  return at(about, path, 'key', `${text}, found "${path.at(-1)}"`)
}

function message({ schema, value, origins }: Explained, path: ConfigPath, issue: LeafIssue): string {
  const held = heldAt(value, path)
  const schemas = schemasAt(schema, path)
  const text =
    issue.message === '' ? `expected ${expected(issue, schemas) ?? 'something else'}` : issue.message
  if (!text.startsWith('expected')) return text
  if (held === undefined) return `missing; ${text}`
  if (isPlainMap(held) && issue.code === 'custom') return text
  const variables = origins.get(path)?.variables ?? []
  const shown = found(held, {
    secrecy: secrecyAt(schema, path),
    variables,
    kindOnly: issue.code === 'invalid_type' && ['object', 'record', 'array'].includes(issue.expected),
  })
  // No hint here, because it may repeat the value of a secret variable.
  if (variables.length > 0) return `${text}, found ${shown}`
  const server = path.at(-1) === 'server' ? nameHere(held, value) : ''
  return `${text}, found ${shown}${hint(issue, held, text)}${server}`
}

/** Returns a hint with the gateway's name for a server whose name in the config is invalid; empty otherwise. */
function nameHere(held: unknown, config: unknown): string {
  const { separator = '__' } = (config as { gateway?: { separator?: unknown } }).gateway ?? {}
  const isWritten = writtenServers(config).some(({ path }) => path.at(-1) === held)
  const name = isWritten ? slugOf(String(held), String(separator)) : undefined
  return name === undefined || name === held ? '' : `; the server is called "${name}" here`
}

function hint(issue: LeafIssue, held: unknown, text: string): string {
  const port = /^:?(\d{1,5})$/.exec(String(held))?.[1]
  if (text.startsWith('expected host:port')) return Number(port) <= 65_535 ? `; write 127.0.0.1:${port}` : ''
  if (issue.code === 'invalid_value' && typeof held === 'string') {
    const meant = suggest(
      held,
      issue.values.filter((value) => typeof value === 'string'),
    )
    return meant === undefined ? '' : `; did you mean "${meant}"?`
  }
  const wantsText = issue.code === 'invalid_type' && issue.expected === 'string'
  return wantsText && ['number', 'boolean'].includes(typeof held) ? '; put it in quotes' : ''
}

const typeNames: Readonly<Record<string, string>> = {
  string: 'text',
  number: 'a number',
  int: 'a whole number',
  boolean: 'true or false',
  object: 'a map',
  record: 'a map',
  array: 'a list',
}

/** Returns the values allowed at the place of `issue`, for example `a whole number from 1 to 64`. */
export function expected(issue: LeafIssue, schemas: readonly z.core.$ZodType[]): string | undefined {
  switch (issue.code) {
    case 'invalid_type':
      return (
        numberRange(issue.expected, schemas) ??
        (typeNames[issue.expected] ?? issue.expected) + suchAs(schemas)
      )
    case 'invalid_value':
      return oneOf(issue.values.map((value) => JSON.stringify(value)))
    case 'too_small':
    case 'too_big':
      return numberRange(issue.origin, schemas) ?? lengthBound(issue)
    case 'none_of':
      // Zod lists no alternatives for a discriminated union, so they are read from the schemas.
      if (issue.alternatives.length === 0) return oneOf(literalsIn(schemas))
      return oneOf(
        [...new Set(issue.alternatives.map((leaf) => expected(leaf, schemas) ?? ''))].filter(Boolean),
      )
    case 'invalid_format':
      return `text in the form ${issue.format}`
    default:
      return undefined
  }
}

/** Returns an example of a map; empty if the schema has no example. */
function suchAs(schemas: readonly z.core.$ZodType[]): string {
  const example = exampleIn(schemas)
  return example === undefined ? '' : ` such as ${inFlow(example)}`
}

function exampleIn(schemas: readonly z.core.$ZodType[]): Readonly<Record<string, unknown>> | undefined {
  const [example] = schemas.flatMap((schema) => z.globalRegistry.get(schema)?.examples ?? [])
  return isPlainMap(example) ? example : undefined
}

/** Formats a flat map in a line, as YAML does. */
const inFlow = (map: Readonly<Record<string, unknown>>) =>
  `{ ${Object.entries(map)
    .map(([key, value]) => `${key}: ${String(value)}`)
    .join(', ')} }`

function literalsIn(schemas: readonly z.core.$ZodType[]): string[] {
  return schemas.flatMap((schema) =>
    schema instanceof z.ZodLiteral ? [...schema.values].map((value) => JSON.stringify(value)) : [],
  )
}

function numberRange(type: string, schemas: readonly z.core.$ZodType[]): string | undefined {
  if (type !== 'number' && type !== 'int') return undefined
  const schema = schemas.find((candidate) => candidate instanceof z.ZodNumber)
  if (schema === undefined) return undefined
  const least = schema.minValue ?? -Infinity
  const most = schema.maxValue ?? Infinity
  const name = schema.format?.includes('int') ? 'a whole number' : 'a number'
  const hasLeast = least > Number.MIN_SAFE_INTEGER
  const hasMost = most < Number.MAX_SAFE_INTEGER
  const isAbove = isExcluded(schema, 'greater_than', least)
  const isBelow = isExcluded(schema, 'less_than', most)
  if (hasLeast && hasMost && !isAbove && !isBelow) return `${name} from ${least} to ${most}`
  const bounds = [
    ...(hasLeast ? [`${isAbove ? 'above' : 'from'} ${least}`] : []),
    ...(hasMost ? [`${isBelow ? 'below' : 'up to'} ${most}`] : []),
  ]
  return [name, ...(bounds.length > 0 ? [bounds.join(' and ')] : [])].join(' ')
}

/** Returns true if a bound of a number is exclusive. */
function isExcluded(schema: z.ZodNumber, check: 'greater_than' | 'less_than', bound: number): boolean {
  return (
    schema.def.checks?.some(({ _zod: { def } }) => {
      const { value, inclusive } = def as Partial<z.core.$ZodCheckGreaterThanDef>
      return def.check === check && value === bound && inclusive === false
    }) === true
  )
}

function lengthBound(issue: z.core.$ZodIssueTooSmall | z.core.$ZodIssueTooBig): string {
  const unit = issue.origin === 'string' ? 'character' : 'entry'
  const bound = issue.code === 'too_small' ? issue.minimum : issue.maximum
  const units = Number(bound) === 1 ? unit : unit === 'entry' ? 'entries' : 'characters'
  return `at ${issue.code === 'too_small' ? 'least' : 'most'} ${bound} ${units}`
}

/** Joins choices: `a`, `a or b`, `a, b or c`. */
function oneOf(choices: readonly string[]): string {
  const last = choices.at(-1) ?? ''
  return choices.length < 2 ? last : `${choices.slice(0, -1).join(', ')} or ${last}`
}

const MAX_SHOWN = 60

interface Showing {
  readonly secrecy: Secrecy | undefined
  /** Names of the variables from which the value came. A message shows the names instead of the value. */
  readonly variables: readonly string[]
  /** True if a message names only the kind of the value, for example where a map was expected. */
  readonly kindOnly: boolean
}

/** Describes a value found in a config, without secrets. */
export function found(value: unknown, { secrecy, variables, kindOnly }: Showing): string {
  if (variables.length > 0) return `the value of ${variables.map((name) => `\${${name}}`).join(' and ')}`
  switch (typeof value) {
    case 'string':
      return kindOnly || hides(value, secrecy) ? 'text' : shorten(JSON.stringify(value))
    case 'number':
    case 'boolean':
      return kindOnly || secrecy !== undefined ? `a ${typeof value}` : String(value)
    default:
      return value === null || value === undefined ? 'nothing' : Array.isArray(value) ? 'a list' : 'a map'
  }
}

/**
 * Returns true if a text must not be shown. An invalid URL cannot be parsed, so a URL with possible credentials is
 * hidden completely.
 */
function hides(text: string, secrecy: Secrecy | undefined): boolean {
  return secrecy === 'url'
    ? /[@?#]/.test(text) || redactUrls(text) !== text || text.split('/').some(looksLikeKey)
    : secrecy !== undefined
}

const shorten = (text: string) => (text.length <= MAX_SHOWN ? text : `${text.slice(0, MAX_SHOWN)}…"`)

type ZodIssue = z.core.$ZodIssue

/** An issue of zod that is not about a union, with its full path. */
type LeafIssue = Exclude<ZodIssue, z.core.$ZodIssueInvalidUnion> | NoneOf

/** The issue for a value that resembles no alternative of a union. */
export interface NoneOf {
  readonly code: 'none_of'
  readonly path: PropertyKey[]
  readonly message: string
  readonly alternatives: readonly LeafIssue[]
}

/**
 * Replaces each issue about a union by the issues of the most similar alternative, or by one issue about all
 * alternatives.
 */
function leafIssues(issues: readonly ZodIssue[], at: readonly PropertyKey[] = []): LeafIssue[] {
  return issues.flatMap((issue): LeafIssue[] => {
    const path = [...at, ...issue.path]
    if (issue.code !== 'invalid_union') return [{ ...issue, path }]
    const branches = issue.errors.map((errors) => leafIssues(errors, path))
    const alike = branches.filter((branch) => !branch.some((leaf) => isOfAnotherType(leaf, path)))
    const closest = alike.toSorted((a, b) => a.length - b.length)[0]
    if (closest !== undefined && issue.message === '') return closest
    return [{ code: 'none_of', path, message: issue.message, alternatives: branches.flat() }]
  })
}

function isOfAnotherType(leaf: LeafIssue, at: readonly PropertyKey[]): boolean {
  return ['invalid_type', 'invalid_value', 'none_of'].includes(leaf.code) && leaf.path.length === at.length
}
