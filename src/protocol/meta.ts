import { isObject } from './jsonrpc.ts'
import { locate, prependMember } from './json-span.ts'
import { withEntry } from './with-entry.ts'

/** Where a message keeps its `_meta`: requests in `params`, responses in `result`. */
export type MetaRoot = 'params' | 'result'

/** Where a result or a list says that something is missing of it. */
export const PARTIAL_KEY = 'dev.breakwater/partial'

/** Where a tool that is listed under a shortened name says its whole one. */
export const FULL_NAME_KEY = 'dev.breakwater/name'

/** Where an agent says how long it has, and a server is told, in milliseconds. */
export const DEADLINE_KEY = 'dev.breakwater/deadline-ms'

interface Message {
  readonly text: string
  readonly value: Readonly<Record<string, unknown>>
}

/** What a message says under a key of its `_meta`; undefined when it says nothing. */
export function metaOf(value: Message['value'], root: MetaRoot, key: string): unknown {
  const holder = value[root]
  const meta = isObject(holder) ? holder._meta : undefined
  return isObject(meta) ? meta[key] : undefined
}

/**
 * The message with one more entry in its `_meta`, or another one in its place; every other byte stays.
 * A `_meta` that is no object gives way.
 */
export function withMeta({ text, value }: Message, root: MetaRoot, key: string, entry: unknown): Message {
  const holder = isObject(value[root]) ? value[root] : {}
  const meta = isObject(holder._meta) ? holder._meta : {}
  return {
    text: patched(text, [root, '_meta', key], JSON.stringify(entry)),
    value: withEntry(value, root, withEntry(holder, '_meta', withEntry(meta, key, entry))),
  }
}

/** The text of a thing that is listed, such as a tool, with one more entry in its `_meta`. */
export function listedWithMeta(text: string, key: string, entry: unknown): string {
  return patched(text, ['_meta', key], JSON.stringify(entry))
}

/** Puts `json` at `path`, with the objects on the way there that are missing. */
function patched(text: string, path: readonly string[], json: string): string {
  let depth = path.length - 1
  while (depth > 0 && !opensObject(text, path.slice(0, depth))) depth--
  const missing = path
    .slice(depth + 1)
    .reduceRight((inner, name) => `{${JSON.stringify(name)}:${inner}}`, json)
  const there = locate(text, path.slice(0, depth + 1))
  if (there !== undefined) return text.slice(0, there.start) + missing + text.slice(there.end)
  const { start, end } = locate(text, path.slice(0, depth)) ?? { start: 0, end: text.length }
  const holder = prependMember(text.slice(start, end), path[depth] as string, missing)
  return text.slice(0, start) + holder + text.slice(end)
}

function opensObject(text: string, path: readonly string[]): boolean {
  const span = locate(text, path)
  return span !== undefined && text[span.start] === '{'
}
