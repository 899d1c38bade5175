import { z } from 'zod'
import { expected } from './expected.ts'
import { found } from './found.ts'
import type { ConfigIssue } from './issues.ts'
import type { Origins } from '../files/origins.ts'
import { formatPath, type Path } from '../files/path.ts'
import { isPlainMap } from '../schema/plain-map.ts'
import { objectsOf, schemasAt, secrecyAt } from '../schema/schema-walk.ts'
import { suggest } from './suggest.ts'
import { leafIssues, type LeafIssue } from './zod-issues.ts'

/** A config that was read, and what to check it against. */
export interface Explained {
  readonly schema: z.core.$ZodType
  readonly value: unknown
  readonly origins: Origins
}

/** Says in our words what zod found: where, what is there, what may be there. Never shows a secret. */
export function explain(issues: readonly z.core.$ZodIssue[], about: Explained): ConfigIssue[] {
  const meant = new Set<string>()
  const explained = leafIssues(issues).flatMap((issue) => {
    const path = issue.path.map((key) => (typeof key === 'number' ? key : String(key)))
    switch (issue.code) {
      case 'unrecognized_keys':
        return issue.keys.map((key) => at(about, [...path, key], 'key', unknownKey(about, path, key, meant)))
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
    // One complaint about a place is enough; and a key that is there, only misspelt, is not missing as well.
    return !said && !(meant.has(path) && message.startsWith('missing'))
  })
}

function at({ origins }: Explained, path: Path, place: 'key' | 'value', text: string): ConfigIssue {
  return { severity: 'error', path: formatPath(path), message: text, ...origins.locate(path, place) }
}

function unknownKey({ schema }: Explained, path: Path, key: string, meant: Set<string>): string {
  const objects = objectsOf(schemasAt(schema, path))
  const other = objects.find(({ shape }) => Object.hasOwn(shape, key))
  if (other !== undefined) return `"${key}" belongs to an entry of another kind (${titleOf(other)})`
  const known = [...new Set(objects.flatMap(({ shape }) => Object.keys(shape)))]
  const guess = suggest(key, known)
  if (guess !== undefined) {
    meant.add(formatPath([...path, guess]))
    return `unknown key "${key}"; did you mean "${guess}"?`
  }
  return `unknown key "${key}"; allowed are ${known.join(', ')}`
}

const titleOf = (schema: z.core.$ZodType) => z.globalRegistry.get(schema)?.title ?? 'see the reference'

function invalidKey(about: Explained, path: Path, issue: z.core.$ZodIssueInvalidKey): ConfigIssue {
  const text = issue.issues[0]?.message ?? 'expected another name'
  // A secret that was written without its name looks like a name.
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

function message({ schema, value, origins }: Explained, path: Path, issue: LeafIssue): string {
  const held = path.reduce<unknown>(
    (inside, key) => (inside as Record<string, unknown> | undefined)?.[key],
    value,
  )
  const schemas = schemasAt(schema, path)
  const text =
    issue.message === '' ? `expected ${expected(issue, schemas) ?? 'something else'}` : issue.message
  if (!text.startsWith('expected')) return text
  if (held === undefined) return `missing; ${text}`
  if (isPlainMap(held) && issue.code === 'custom') return text
  const shown = found(held, {
    secrecy: secrecyAt(schema, path),
    variables: origins.get(path)?.variables ?? [],
    kindOnly: issue.code === 'invalid_type' && ['object', 'record', 'array'].includes(issue.expected),
  })
  return `${text}, found ${shown}${hint(issue, held)}`
}

function hint(issue: LeafIssue, held: unknown): string {
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
