import { isObject } from './jsonrpc.ts'
import { skipSpace, type Edit, edit, findMember, prepending, splice } from './json-span.ts'
import { edited } from './large-message.ts'

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

/** Returns a message's entry under a key of its `_meta`; undefined when there is none. */
export function metaOf(value: Message['value'], root: MetaRoot, key: string): unknown {
  const holder = value[root]
  const meta = isObject(holder) ? holder._meta : undefined
  return isObject(meta) ? meta[key] : undefined
}

/**
 * The message with one more entry in its `_meta`, or another one in its place; every other byte stays.
 * A `_meta` that is no object gives way.
 */
export function withMeta<M extends Message>(message: M, root: MetaRoot, key: string, entry: unknown): M {
  const { value } = message
  const holder = isObject(value[root]) ? value[root] : {}
  const meta = isObject(holder._meta) ? holder._meta : {}
  return edited(
    message,
    (text) => [patch(text, [root, '_meta', key], JSON.stringify(entry))],
    withEntry(value, root, withEntry(holder, '_meta', withEntry(meta, key, entry))),
  )
}

/** The text of a thing that is listed, such as a tool, with one more entry in its `_meta`. */
export function listedWithMeta(text: string, key: string, entry: unknown): string {
  return splice(text, [patch(text, ['_meta', key], JSON.stringify(entry))])
}

/**
 * Returns the edit that puts `json` at `path`, with the missing objects on the way there. Each level is walked once: a
 * level may be large.
 */
function patch(text: string, path: readonly string[], json: string): Edit {
  let at = skipSpace(text, 0)
  for (let depth = 0; ; depth++) {
    const name = path[depth]!
    const member = findMember(text, at, name)
    const wrapped = path
      .slice(depth + 1)
      .reduceRight((inner, missing) => `{${JSON.stringify(missing)}:${inner}}`, json)
    if (member === undefined) return prepending(text, at, name, wrapped)
    if (depth === path.length - 1 || text[member.start] !== '{') return edit(member, wrapped)
    at = member.start
  }
}

type Fields = Readonly<Record<string, unknown>>

/**
 * A copy of a parsed JSON object with one more entry, or another one in its place: calls on their way out are copied every time.
 * For V8 a copy with the same keys is a copy of memory; one more key behind it takes longer than to write all of them anew.
 */
export function withEntry(object: Fields, key: string, entry: unknown): Fields {
  if (Object.hasOwn(object, key)) return { ...object, [key]: entry }
  const copy: Record<string, unknown> = { [key]: entry }
  for (const name in object) {
    // To assign it would change what the copy inherits.
    if (name === '__proto__') return { ...object, [key]: entry }
    if (name !== key) copy[name] = object[name]
  }
  return copy
}
