import { locate, type JsonPath } from '../protocol/json-span.ts'

/** Most that a client may say of itself, in bytes: it is kept for as long as the client stays. */
const MAX_CLIENT_INFO = 16 * 1024

/** Most members and elements in what a client says of itself: parsed, each takes up to twenty times its text. */
export const MAX_CLIENT_INFO_VALUES = 256

/**
 * Why what stands at these places of a request is too much to be kept; undefined when it is not. `said` is the same
 * parsed.
 */
export function tooMuchToSay(
  text: string,
  said: readonly unknown[],
  ...paths: readonly JsonPath[]
): string | undefined {
  const names = () => paths.map((path) => path.at(-1)).join(' and ')
  let values = 0
  for (const value of said) values += valuesIn(value, MAX_CLIENT_INFO_VALUES - values)
  if (values > MAX_CLIENT_INFO_VALUES)
    return `Invalid params: ${names()} have too many members and elements (at most ${MAX_CLIENT_INFO_VALUES})`
  // No character takes more than three bytes of UTF-8: most requests need no second look.
  if (text.length * 3 <= MAX_CLIENT_INFO) return undefined
  let bytes = 0
  for (const path of paths) {
    const span = locate(text, path)
    if (span !== undefined) bytes += Buffer.byteLength(text.slice(span.start, span.end))
  }
  if (bytes <= MAX_CLIENT_INFO) return undefined
  return `Invalid params: ${names()} take ${bytes} bytes (at most ${MAX_CLIENT_INFO})`
}

/** How many members and elements a value has; counts no further than to one more than `most`. */
function valuesIn(value: unknown, most: number): number {
  if (typeof value !== 'object' || value === null) return 0
  const inner: unknown[] = Array.isArray(value) ? value : Object.values(value)
  let count = inner.length
  for (let at = 0; at < inner.length && count <= most; at++) count += valuesIn(inner[at], most - count)
  return count
}

/** Most bytes of memory that a member or element takes besides its text; measured. */
const VALUE_BYTES = 128

/** Returns the most bytes of memory that the params of an `initialize` take, with the headers of its request. */
export function initializeBytes(initializeParams: unknown, headers: unknown): number {
  // A character takes one byte or two.
  const text = 2 * JSON.stringify([initializeParams, headers]).length
  return text + VALUE_BYTES * (valuesIn(initializeParams, Infinity) + valuesIn(headers, Infinity))
}
