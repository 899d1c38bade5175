import { isObject } from '../../protocol/jsonrpc.ts'

/** How the keys of a request are written; its answer has the same. */
export type Style = 'camelCase' | 'snake_case'

/** What holds names or data of somebody else, in which nothing may be renamed. */
const foreign = new Set(['header', 'headers', 'data', 'value', 'values', 'to', 'body'])

/** `snake_case` when any key has a `_`; else `camelCase`. */
export function styleOf(value: unknown): Style {
  return keysIn(value).some((key) => key.includes('_')) ? 'snake_case' : 'camelCase'
}

function keysIn(value: unknown): string[] {
  if (Array.isArray(value)) return value.flatMap(keysIn)
  if (!isObject(value)) return []
  return Object.entries(value).flatMap(([key, held]) => [key, ...(foreign.has(key) ? [] : keysIn(held))])
}

/** The same with its keys in a style. Of two that become one, the last one counts. */
export function restyled(value: unknown, style: Style): unknown {
  if (Array.isArray(value)) return value.map((item) => restyled(item, style))
  if (!isObject(value)) return value
  return Object.fromEntries(
    Object.entries(value).map(([key, held]) => [
      style === 'camelCase' ? camel(key) : snake(key),
      foreign.has(key) ? held : restyled(held, style),
    ]),
  )
}

const camel = (key: string) => key.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase())
const snake = (key: string) => key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)
