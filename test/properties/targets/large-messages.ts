import assert from 'node:assert/strict'
import { isUtf8 } from 'node:buffer'
import fc from 'fast-check'
import { parseExactly } from '../../../src/protocol/json-parse.ts'
import { type Edit, edit, elements, locate, members, prepending } from '../../../src/protocol/json-span.ts'
import { isObject, parseJson } from '../../../src/protocol/jsonrpc.ts'
import { edited, LargeMessage } from '../../../src/protocol/large-message.ts'
import { LongStrings } from '../../../src/protocol/long-strings.ts'
import { damaged, writtenObject } from '../arbitraries.ts'
import { target, type Target } from '../target.ts'

/** How a text arrives: in pieces of these lengths, cyclically; and which of its strings are long. */
const ways = fc.record({
  pieces: fc.array(fc.integer({ min: 1, max: 200 }), { minLength: 1, maxLength: 5 }),
  long: fc.constantFrom(2, 3, 6, 60, 16 * 1024),
})

/** Repeats some of the characters within strings many times. */
const stretched = (texts: fc.Arbitrary<string>): fc.Arbitrary<string> =>
  fc
    .tuple(texts, fc.constantFrom(1, 7, 60))
    .map(([text, times]) => text.replaceAll(/[/é]/g, (character) => character.repeat(times)))

const objects = stretched(writtenObject.map(({ text }) => text))

/** Each piece is a view into a larger buffer, like a read from a socket. */
function cut(bytes: Buffer, pieces: readonly number[]): Buffer[] {
  const chunks: Buffer[] = []
  for (let at = 0; at < bytes.length;) {
    const chunk = bytes.subarray(at, at + pieces[chunks.length % pieces.length]!)
    chunks.push(Buffer.concat([Buffer.from('"\\'), chunk]).subarray(2))
    at += chunk.length
  }
  return chunks
}

function read(bytes: Buffer, { pieces, long }: { pieces: readonly number[]; long: number }) {
  const strings = new LongStrings(long)
  const chunks = cut(bytes, pieces)
  return chunks.every((chunk) => strings.read(chunk)) ? LargeMessage.read(chunks, strings) : undefined
}

function isAs(message: LargeMessage | undefined, text: string): void {
  assert.deepEqual(message?.value, parseExactly(text))
  assert.equal(message?.text, text)
  findsWhatIsThere(message, text)
}

/** Checks that top-level members are found, and stay in place when replaced. */
function findsWhatIsThere(message: LargeMessage, text: string): void {
  const bytes = Buffer.concat(message.chunks)
  for (const name of new Set([...Object.keys(message.value), 'nowhere'])) {
    const span = locate(text, [name])
    const [found] = message.locate([name]) ?? []
    assert.equal(found === undefined, span === undefined, name)
    if (found === undefined || span === undefined) continue
    assert.equal(bytes.toString('utf8', found.start, found.end), text.slice(span.start, span.end))
    const before = { start: found.start, end: found.start, with: '' }
    const replaced = message.spliced([before, { ...found, with: '"ü"' }])
    const expected = `${bytes.toString('utf8', 0, found.start)}"ü"${bytes.toString('utf8', found.end)}`
    assert.equal(replaced.text, expected)
    assert.deepEqual(replaced.value, { ...message.value, [name]: 'ü' })
  }
}

/** Edits of the members of the outermost object, in turn and cyclically. */
const deeds = fc.array(fc.constantFrom('leave', 'replace', 'prepend', 'append', 'deeper'), {
  minLength: 1,
  maxLength: 4,
})

/** Returns such edits of a text, at its long strings. */
function editsOf(text: string, wanted: readonly string[]): Edit[] {
  const { start } = locate(text, [])!
  return members(text, start).flatMap((member, index): Edit[] => {
    const opening = text[member.start]
    const children = opening === '[' ? [...elements(text, member.start)] : []
    switch (wanted[index % wanted.length]) {
      case 'replace':
        return [edit(member, '"ü"')]
      case 'prepend':
        return opening === '{' ? [prepending(text, member.start, 'né', '[1]')] : []
      case 'append': {
        const end = children.at(-1)?.end ?? member.start + 1
        const comma = children.length === 0 ? '' : ','
        return opening === '[' ? [{ start: end, end, with: `${comma}"日本"` }] : []
      }
      case 'deeper': {
        const inner = opening === '{' ? members(text, member.start) : children
        return inner.map((child) => edit(child, 'null'))
      }
      default:
        return []
    }
  })
}

export const largeMessageTargets: readonly Target[] = [
  target(
    'a large message is what JSON.parse makes of its text, in whatever pieces it comes',
    fc.tuple(objects, ways),
    ([text, way]) => {
      const bytes = Buffer.from(text)
      isAs(read(bytes, way), bytes.toString())
    },
  ),

  target(
    'a large message is edited as its text is, over and over',
    fc.tuple(objects, ways, fc.array(deeds, { minLength: 1, maxLength: 3 })),
    ([text, way, rounds]) => {
      const bytes = Buffer.from(text)
      const whole = bytes.toString()
      let message = read(bytes, way)!
      let expected = { text: whole, value: message.value }
      for (const wanted of rounds) {
        const find = (outline: string) => editsOf(outline, wanted)
        message = edited(message, find)
        expected = edited(expected, find)
        assert.ok(LargeMessage.is(message))
        assert.equal(message.byteLength, Buffer.byteLength(expected.text))
        assert.equal(message.text, expected.text)
        assert.deepEqual(message.value, expected.value)
      }
    },
  ),

  target('what is no JSON object is no large message', fc.tuple(stretched(damaged), ways), ([text, way]) => {
    const bytes = Buffer.from(text)
    const message = read(bytes, way)
    if (isObject(parseJson(bytes.toString()))) isAs(message, bytes.toString())
    else assert.equal(message, undefined)
  }),

  target(
    'bytes that are no UTF-8, or no JSON any more, are no large message',
    fc.tuple(objects, ways, fc.array(fc.tuple(fc.nat(), fc.nat(255)), { minLength: 1, maxLength: 3 })),
    ([text, way, changes]) => {
      const bytes = Buffer.from(text)
      for (const [at, byte] of changes) bytes[at % bytes.length] = byte
      const message = read(bytes, way)
      if (isUtf8(bytes) && isObject(parseJson(bytes.toString()))) isAs(message, bytes.toString())
      else assert.equal(message, undefined)
    },
  ),
]
