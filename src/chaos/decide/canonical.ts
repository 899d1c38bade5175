import { hash } from 'node:crypto'

/** Deepest nesting that is read; past it a value has no canonical form. */
const MAX_DEPTH = 100

/** The first 16 hex digits of the SHA-256 of a text. */
export const digest = (text: string): string => hash('sha256', text, 'hex').slice(0, 16)

/** JSON text that is the same for equal values, whatever the order of their keys; undefined when it nests too deep. */
export function canonical(value: unknown, depth = 0): string | undefined {
  if (typeof value !== 'object' || value === null) return JSON.stringify(value ?? null)
  if (depth === MAX_DEPTH) return undefined
  const parts: string[] = []
  const list = Array.isArray(value)
  for (const key of list ? value.keys() : Object.keys(value).sort()) {
    const held = canonical((value as Record<string | number, unknown>)[key], depth + 1)
    if (held === undefined) return undefined
    parts.push(list ? held : `${JSON.stringify(key)}:${held}`)
  }
  return list ? `[${parts.join()}]` : `{${parts.join()}}`
}

/** Fields as one text, each with its length in front, so that no two lists of fields run together. */
export const joined = (...fields: readonly (string | number)[]): string =>
  fields.map((field) => `${String(field).length}:${field}`).join(' ')
