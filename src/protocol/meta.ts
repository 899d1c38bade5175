import { isObject } from './jsonrpc.ts'
import { skipSpace, type Edit, edit, findMember, prepending, splice } from './json-span.ts'
import { edited } from './large-message.ts'

/** Where a message keeps its `_meta`: requests in `params`, responses in `result`. */
export type MetaRoot = 'params' | 'result'

/** Key that marks a result or a list with a missing part. */
export const PARTIAL_KEY = 'dev.breakwater/partial'

/** Key for the full name of a tool listed under a shortened name. */
export const FULL_NAME_KEY = 'dev.breakwater/name'

/**
 * Key for the remaining time of a call, in milliseconds. Agents send it to the gateway, and the gateway sends it to
 * servers.
 */
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

/** Returns the message with an entry set in `_meta`; all other bytes stay. A `_meta` that is no object is replaced. */
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

/** Returns the text of a listed item (a tool, for instance) with another entry in its `_meta`. */
export function listedWithMeta(text: string, key: string, entry: unknown): string {
  return splice(text, [patch(text, ['_meta', key], JSON.stringify(entry))])
}

/**
 * Returns the edit that puts `json` at `path` and creates missing objects. Walks each level only once, because a level
 * may be large.
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
 * Returns a copy of a parsed JSON object with an entry added or replaced; called for every outgoing call. When no key
 * is added, V8 copies the object fast. Adding a key to such a copy is slower than writing all keys into a new object.
 */
export function withEntry(object: Fields, key: string, entry: unknown): Fields {
  if (Object.hasOwn(object, key)) return { ...object, [key]: entry }
  const copy: Record<string, unknown> = { [key]: entry }
  for (const name in object) {
    // Assigning `__proto__` would change the copy's prototype.
    if (name === '__proto__') return { ...object, [key]: entry }
    if (name !== key) copy[name] = object[name]
  }
  return copy
}
