import fc from 'fast-check'
import type { JsonPath, Span } from '../../src/protocol/json-span.ts'

/** White space allowed by JSON. */
const space = fc.string({ unit: fc.constantFrom(' ', '\n', '\r', '\t'), maxLength: 2 })

/** Pieces of strings between two quotes: raw, escaped, and lone surrogates. */
const piece = fc.constantFrom(
  ...['a', 'é', '😀', ' ', '\u2028', '\ud800', '\udc00', '\u007f', ',', ':', '{', '}', '[', ']', '/', "'"],
  ...['\\"', '\\\\', '\\/', '\\b', '\\n', '\\u0061', '\\u0000', '\\ud83d\\ude00', '\\ud800', '\\udfff'],
)
const quoted = fc.array(piece, { maxLength: 6 }).map((pieces) => `"${pieces.join('')}"`)

/** Few names, each in several spellings, for frequent duplicates; includes `__proto__` and similar names. */
const keys = fc.constantFrom(
  ...['"id"', '"\\u0069d"', '"ID"', '"params"', '"par\\u0061ms"', '"result"', '"_meta"', '"\\u005fmeta"'],
  ...['"name"', '""', '"a\\"b"', '"a\\\\"', '"__proto__"', '"constructor"', '"toString"', '"0"', '"\\ud800"'],
)
const key = fc.oneof({ weight: 4, arbitrary: keys }, quoted)

const number = fc.oneof(
  fc.constantFrom('0', '-0', '1e400', '-1E+400', '1e-400', '12345678901234567890', '0.1', '1.50', '5e-324'),
  fc.integer().map(String),
  fc.bigInt().map(String),
)
const scalar = fc.oneof(fc.constantFrom('null', 'true', 'false'), number, quoted)

type Node =
  | { readonly scalar: string }
  | { readonly items: readonly Padded[]; readonly empty: string }
  | { readonly members: readonly Member[]; readonly empty: string }

/** A value with surrounding white space. */
interface Padded {
  readonly before: string
  readonly node: Node
  readonly after: string
}

interface Member {
  readonly before: string
  readonly key: string
  readonly behind: string
  readonly value: Padded
}

const { node, padded } = fc.letrec<{ node: Node; padded: Padded; member: Member }>((tie) => ({
  node: fc.oneof(
    { maxDepth: 4, withCrossShrink: true },
    scalar.map((text) => ({ scalar: text })),
    fc.record({ items: fc.array(tie('padded'), { maxLength: 4 }), empty: space }),
    fc.record({ members: fc.array(tie('member'), { maxLength: 5 }), empty: space }),
  ),
  padded: fc.record({ before: space, node: tie('node'), after: space }),
  member: fc.record({ before: space, key, behind: space, value: tie('padded') }),
}))

/** A JSON text with the position of each value. Positions come from assembling the text, not from parsing. */
export interface Written {
  readonly text: string
  /** Each value visible after `JSON.parse`: among members with the same name, the last. */
  readonly values: readonly (Span & { readonly path: JsonPath })[]
  /** Whether an object has two members with the same name. */
  readonly hasDuplicates: boolean
}

export const written: fc.Arbitrary<Written> = padded.map(write)

export const writtenObject: fc.Arbitrary<Written> = fc
  .record({ before: space, node, after: space })
  .filter((whole) => 'members' in whole.node)
  .map(write)

function write(whole: Padded): Written {
  const values: (Span & { path: JsonPath })[] = []
  let text = ''
  let hasDuplicates = false
  const add = (more: string) => void (text += more)
  const put = ({ before, node, after }: Padded, path: JsonPath, seen: boolean): void => {
    add(before)
    const start = text.length
    if ('scalar' in node) add(node.scalar)
    else if ('items' in node) {
      add('[')
      if (node.items.length === 0) add(node.empty)
      for (const [index, item] of node.items.entries()) {
        if (index > 0) add(',')
        put(item, [...path, index], seen)
      }
      add(']')
    } else {
      const names = node.members.map((member) => JSON.parse(member.key) as string)
      hasDuplicates ||= new Set(names).size < names.length
      add('{')
      if (node.members.length === 0) add(node.empty)
      for (const [index, member] of node.members.entries()) {
        const name = names[index] as string
        add(`${index > 0 ? ',' : ''}${member.before}${member.key}${member.behind}:`)
        put(member.value, [...path, name], seen && names.lastIndexOf(name) === index)
      }
      add('}')
    }
    if (seen) values.push({ path, start, end: text.length })
    add(after)
  }
  put(whole, [], true)
  return { text, values, hasDuplicates }
}

/** A damaged JSON text, mostly no longer JSON. */
export const damaged: fc.Arbitrary<string> = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 40 }),
  fc
    .tuple(written, fc.nat(), fc.nat({ max: 4 }), fc.string({ maxLength: 3 }))
    .map(([{ text }, at, cut, put]) => {
      const place = at % (text.length + 1)
      return text.slice(0, place) + put + text.slice(place + cut)
    }),
)

/** Sizes of pieces for cutting bytes, taken in turn; small sizes are frequent. */
export const cuts = fc.array(fc.oneof(fc.integer({ min: 1, max: 3 }), fc.integer({ min: 1, max: 2_000 })), {
  minLength: 1,
  maxLength: 8,
})

/** Cuts bytes into pieces of these sizes, cycling through the sizes. */
export function cut(bytes: Buffer, sizes: readonly number[]): Buffer[] {
  const pieces: Buffer[] = []
  for (let at = 0, turn = 0; at < bytes.length; turn++) {
    const size = sizes[turn % sizes.length] as number
    // A copy, to catch readers that keep a view of a buffer which the socket reuses.
    pieces.push(Buffer.from(bytes.subarray(at, at + size)))
    at += size
  }
  return pieces
}

/** Returns the text without lone surrogates, as UTF-8 can carry it. */
export const wellFormed = (text: string): string => Buffer.from(text).toString()
