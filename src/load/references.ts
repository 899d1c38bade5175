import { isObject } from '../protocol/jsonrpc.ts'

/**
 * References in a workload, resolved when a task is played. `${n}` and `${task}` are the number and the name of the
 * task. `${values.item}` is a random value drawn for the task. `${steps.found.structuredContent.items[0].id}` is a part
 * of the result saved by an earlier step. A text that is only a reference becomes the referenced value, of any type;
 * within a longer text the value is written out. `$${` stands for a literal `${`.
 */

/** The values available to references, for a single task. */
export interface Scope {
  /** The number of the task, from 0. */
  readonly n: number
  readonly task: string
  readonly values: Readonly<Record<string, unknown>>
  /** Saved results, by the names given in the steps. */
  readonly steps: Readonly<Record<string, unknown>>
}

/** Keys and list positions from the root of a scope. */
export type Reference = readonly (string | number)[]

type Part = string | { readonly written: string; readonly reference: Reference | undefined }

const FORM =
  'allowed are ${n}, ${task}, ${values.NAME} and ${steps.NAME.key[0].key}; write $${ for a literal ${'

/** A reference without a value. The message names the reference and contains no value. */
export class Unresolved extends Error {}

/** Yields the references in a value, at any depth, each with its path and its problem, if any. */
export function* referencesIn(
  value: unknown,
  path: readonly (string | number)[] = [],
): Iterable<{
  readonly path: readonly (string | number)[]
  readonly reference: Reference
  readonly problem: string | undefined
}> {
  if (typeof value === 'string') {
    for (const part of partsOf(value)) {
      if (typeof part === 'string') continue
      const problem = part.reference === undefined ? `found ${shown(part.written)}; ${FORM}` : undefined
      yield { path, reference: part.reference ?? [], problem }
    }
  } else if (Array.isArray(value)) {
    for (const [index, inner] of value.entries()) yield* referencesIn(inner, [...path, index])
  } else if (isObject(value)) {
    for (const [key, inner] of Object.entries(value)) yield* referencesIn(inner, [...path, key])
  }
}

/** Returns the value with its references filled in. Throws `Unresolved`. */
export function resolved(value: unknown, scope: Scope): unknown {
  if (typeof value === 'string') return filled(value, scope)
  if (Array.isArray(value)) return value.map((inner) => resolved(inner, scope))
  if (!isObject(value)) return value
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, resolved(inner, scope)]))
}

function filled(text: string, scope: Scope): unknown {
  if (!text.includes('${')) return text
  const parts = partsOf(text)
  const [only] = parts
  if (parts.length === 1 && only !== undefined && typeof only !== 'string') return found(only, scope)
  return parts.map((part) => (typeof part === 'string' ? part : written(found(part, scope)))).join('')
}

const written = (value: unknown): string => (typeof value === 'string' ? value : JSON.stringify(value))

function found({ written, reference }: Exclude<Part, string>, scope: Scope): unknown {
  const value = valueAt(scope, reference ?? [''])
  if (value === undefined) throw new Unresolved(`${shown(written)} refers to nothing`)
  return value
}

/** Returns the value at a path; undefined when there is nothing. */
export function valueAt(root: unknown, path: Reference): unknown {
  let value = root
  for (const key of path) {
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, key)) return undefined
    value = (value as Readonly<Record<string | number, unknown>>)[key]
  }
  return value
}

/** Parses a path such as `structuredContent.items[0]["an id"]`; undefined when the text is no path. */
export function pathOf(text: string): Reference | undefined {
  const keys: (string | number)[] = []
  const pattern = /([\w$-]+)|\[(\d{1,6})\]|\["([^"\]]+)"\]/y
  for (let at = 0; at < text.length; at = pattern.lastIndex) {
    // Dots separate names; brackets need no dot.
    if (at > 0 && text[at] === '.') at++
    else if (at > 0 && text[at] !== '[') return undefined
    pattern.lastIndex = at
    const match = pattern.exec(text)
    if (match === null) return undefined
    const [, name, index, quoted] = match
    keys.push(index === undefined ? (name ?? quoted ?? '') : Number(index))
  }
  return keys.length === 0 ? undefined : keys
}

function partsOf(text: string): Part[] {
  const parts: Part[] = []
  let plain = ''
  let from = 0
  for (let at = text.indexOf('${'); at !== -1; at = text.indexOf('${', from)) {
    if (at > from && text[at - 1] === '$') {
      plain += `${text.slice(from, at - 1)}\${`
      from = at + 2
      continue
    }
    plain += text.slice(from, at)
    if (plain !== '') parts.push(plain)
    plain = ''
    const end = text.indexOf('}', at)
    const inside = text.slice(at + 2, Math.max(end, at + 2))
    from = end === -1 ? text.length : end + 1
    parts.push({ written: text.slice(at, from), reference: end === -1 ? undefined : referenceOf(inside) })
  }
  plain += text.slice(from)
  if (plain !== '' || parts.length === 0) parts.push(plain)
  return parts
}

function referenceOf(inside: string): Reference | undefined {
  const path = pathOf(inside)
  if (path === undefined) return undefined
  const [root] = path
  if (root === 'n' || root === 'task') return path.length === 1 ? path : undefined
  if (root === 'values' || root === 'steps') return path.length >= 2 ? path : undefined
  return undefined
}

const shown = (written: string) => `"${written.slice(0, 60)}"`
