import { locate, members } from './json-span.ts'
import { CLIENT_CAPABILITIES_KEY, CLIENT_INFO_KEY, LOG_LEVEL_KEY, PROTOCOL_VERSION_KEY } from './modern.ts'

/** What a request of the modern era says of its client: a session of the legacy era knows all of it. */
const envelope: ReadonlySet<string> = new Set([
  PROTOCOL_VERSION_KEY,
  CLIENT_INFO_KEY,
  CLIENT_CAPABILITIES_KEY,
  LOG_LEVEL_KEY,
])

/**
 * A request's text without what only the modern era knows. A server of both eras that finds it beside the headers of a
 * session takes the request for a contradiction.
 */
export function withoutEnvelope(text: string): string {
  const meta = locate(text, ['params', '_meta'])
  if (meta === undefined || text[meta.start] !== '{') return text
  const all = [...members(text, meta.start)]
  const kept = all.filter(({ key }) => !envelope.has(key))
  if (kept.length === all.length) return text
  const written = kept.map(({ keyStart, end }) => text.slice(keyStart, end)).join()
  return `${text.slice(0, meta.start)}{${written}}${text.slice(meta.end)}`
}
