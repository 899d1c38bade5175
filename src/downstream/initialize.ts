import { locate, type JsonPath } from '../protocol/json-span.ts'

/** Longest description of a client, in bytes; the gateway keeps the description as long as the client's session. */
const MAX_CLIENT_INFO = 16 * 1024

/**
 * Most members and elements in a client's description. In memory each takes up to twenty times the bytes of its text.
 */
export const MAX_CLIENT_INFO_VALUES = 256

/**
 * Returns an error message when the values at `paths` are too large to keep; undefined when small enough. `said`: the
 * parsed values.
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
  // A character takes at most three bytes of UTF-8, so a short text needs no exact count.
  if (text.length * 3 <= MAX_CLIENT_INFO) return undefined
  let bytes = 0
  for (const path of paths) {
    const span = locate(text, path)
    if (span !== undefined) bytes += Buffer.byteLength(text.slice(span.start, span.end))
  }
  if (bytes <= MAX_CLIENT_INFO) return undefined
  return `Invalid params: ${names()} take ${bytes} bytes (at most ${MAX_CLIENT_INFO})`
}

/** Returns how many members and elements a value has; stops counting above `most`. */
function valuesIn(value: unknown, most: number): number {
  if (typeof value !== 'object' || value === null) return 0
  const inner: unknown[] = Array.isArray(value) ? value : Object.values(value)
  let count = inner.length
  for (let at = 0; at < inner.length && count <= most; at++) count += valuesIn(inner[at], most - count)
  return count
}

/** Most memory of a member or element in addition to its text, in bytes; a measured value. */
const VALUE_BYTES = 128

/** Returns an upper bound of the memory for the params of an `initialize` and the headers of its request, in bytes. */
export function initializeBytes(initializeParams: unknown, headers: unknown): number {
  // A character takes one or two bytes in memory.
  const text = 2 * JSON.stringify([initializeParams, headers]).length
  return text + VALUE_BYTES * (valuesIn(initializeParams, Infinity) + valuesIn(headers, Infinity))
}
