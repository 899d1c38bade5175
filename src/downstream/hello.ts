import { locate, type Path } from '../protocol/json-span.ts'

/** Most that a client may say of itself, in bytes: it is kept for as long as the client stays. */
export const MAX_HELLO = 16 * 1024

/** Most members and elements in what a client says of itself: parsed, each takes up to twenty times its text. */
export const MAX_HELLO_VALUES = 256

/**
 * Why what stands at these places of a request is too much to be kept; undefined when it is not. `said` is the same
 * parsed.
 */
export function tooMuchToSay(
  text: string,
  said: readonly unknown[],
  ...paths: readonly Path[]
): string | undefined {
  const names = () => paths.map((path) => path.at(-1)).join(' and ')
  let values = 0
  for (const value of said) values += valuesIn(value, MAX_HELLO_VALUES - values)
  if (values > MAX_HELLO_VALUES)
    return `Invalid params: ${names()} have too many members and elements (at most ${MAX_HELLO_VALUES})`
  // No character takes more than three bytes of UTF-8: most requests need no second look.
  if (text.length * 3 <= MAX_HELLO) return undefined
  let bytes = 0
  for (const path of paths) {
    const span = locate(text, path)
    if (span !== undefined) bytes += Buffer.byteLength(text.slice(span.start, span.end))
  }
  if (bytes <= MAX_HELLO) return undefined
  return `Invalid params: ${names()} take ${bytes} bytes (at most ${MAX_HELLO})`
}

/** How many members and elements a value has; counts no further than to one more than `most`. */
function valuesIn(value: unknown, most: number): number {
  if (typeof value !== 'object' || value === null) return 0
  const inner: unknown[] = Array.isArray(value) ? value : Object.values(value)
  let count = inner.length
  for (let at = 0; at < inner.length && count <= most; at++) count += valuesIn(inner[at], most - count)
  return count
}

/** What a member or element takes in memory at most, besides its text, in bytes; measured. */
const VALUE_BYTES = 128

/** What a greeting takes in memory at most, with the headers that came with it, in bytes. */
export function greetingBytes(hello: unknown, headers: unknown): number {
  // A character takes one byte or two.
  const text = 2 * JSON.stringify([hello, headers]).length
  return text + VALUE_BYTES * (valuesIn(hello, Infinity) + valuesIn(headers, Infinity))
}
