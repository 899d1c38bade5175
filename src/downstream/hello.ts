import { locate, type Path } from '../protocol/json-span.ts'

/** Most that a client may say of itself, in bytes: it is kept for as long as the client stays. */
export const MAX_HELLO = 16 * 1024

/** Why what stands at these places of a request is too much to be kept; undefined when it is not. */
export function tooMuchToSay(text: string, ...paths: readonly Path[]): string | undefined {
  // No character takes more than three bytes of UTF-8: most requests need no second look.
  if (text.length * 3 <= MAX_HELLO) return undefined
  let bytes = 0
  for (const path of paths) {
    const span = locate(text, path)
    if (span !== undefined) bytes += Buffer.byteLength(text.slice(span.start, span.end))
  }
  if (bytes <= MAX_HELLO) return undefined
  return `Invalid params: ${paths.map((path) => path.at(-1)).join(' and ')} take ${bytes} bytes (at most ${MAX_HELLO})`
}
