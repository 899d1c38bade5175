import { isObject } from './jsonrpc.ts'
import { locate, prependMember } from './json-span.ts'

/** Where a message keeps its `_meta`: requests in `params`, responses in `result`. */
export type MetaRoot = 'params' | 'result'

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

/** The message with one more entry in its `_meta`, or another one in its place; every other byte stays. */
export function withMeta({ text, value }: Message, root: MetaRoot, key: string, entry: unknown): Message {
  const holder = isObject(value[root]) ? value[root] : {}
  const meta = isObject(holder._meta) ? holder._meta : {}
  return {
    text: patched(text, root, key, JSON.stringify(entry)),
    value: { ...value, [root]: { ...holder, _meta: { ...meta, [key]: entry } } },
  }
}

function patched(text: string, root: MetaRoot, key: string, entry: string): string {
  const there = locate(text, [root, '_meta', key])
  if (there !== undefined) return text.slice(0, there.start) + entry + text.slice(there.end)
  const path = [root, '_meta']
  for (let depth = path.length; depth >= 0; depth--) {
    const span = locate(text, path.slice(0, depth))
    if (span === undefined || text[span.start] !== '{') continue
    const missing = path
      .slice(depth + 1)
      .reduceRight((inner, name) => `{${JSON.stringify(name)}:${inner}}`, `{${JSON.stringify(key)}:${entry}}`)
    const [name, json] = depth === path.length ? [key, entry] : [path[depth] as string, missing]
    return (
      text.slice(0, span.start) +
      prependMember(text.slice(span.start, span.end), name, json) +
      text.slice(span.end)
    )
  }
  return text
}
