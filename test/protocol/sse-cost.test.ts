import assert from 'node:assert/strict'
import { test } from 'node:test'
import { SseDecoder } from '../../src/protocol/sse.ts'

/** A buffer that counts searched bytes, in its slices too. */
class Counted extends Buffer {
  static searched = 0
}

/** Returns the bytes that the decoder searches for a stream in pieces of `size` bytes. */
function searchedFor(unit: string, bytes: number, size: number): number {
  const stream = Buffer.from(unit.repeat(Math.ceil(bytes / unit.length)))
  const decoder = new SseDecoder(16 * 1024 ** 2, () => true)
  Counted.searched = 0
  for (let at = 0; at < stream.length; at += size) {
    const chunk = Buffer.from(stream.subarray(at, at + size))
    Object.setPrototypeOf(chunk, Counted.prototype)
    decoder.feed(chunk)
  }
  return Counted.searched
}

Object.defineProperty(Counted.prototype, 'indexOf', {
  value(this: Buffer, byte: number, from = 0): number {
    const found = Uint8Array.prototype.indexOf.call(this, byte, from)
    Counted.searched += (found === -1 ? this.length : found + 1) - from
    return found
  },
})

const units = {
  'bare CR': '\r',
  'bare LF': '\n',
  CRLF: '\r\n',
  'comments that end in CR': ':\r',
  'comments that end in LF': ':\n',
  'long comments': `: ${'x'.repeat(1_000)}\n`,
  'events that end in CR': 'data: x\r\r',
  'events that end in LF': 'data: x\n\n',
  'a line that does not end': 'x',
}

for (const [name, unit] of Object.entries(units)) {
  test(`a stream of ${name} is searched a few times at most, in pieces of any size`, () => {
    for (const size of [1, 7, 1_000, 65_536]) {
      const bytes = 131_072
      const searched = searchedFor(unit, bytes, size)
      assert.ok(searched <= 3 * bytes, `${searched} of ${bytes} bytes in pieces of ${size}`)
    }
  })
}

test('a decoder that is asked to pause gives the rest of the chunk when it goes on', () => {
  const told: string[] = []
  const decoder = new SseDecoder(1_000, ({ data }) => {
    told.push(data)
    return told.length % 2 !== 0
  })
  assert.equal(decoder.feed(Buffer.from('data: 1\n\ndata: 2\r\n\r\ndata: 3\n\ndata: 4\n\nda')), false)
  assert.deepEqual(told, ['1', '2'])
  assert.equal(decoder.feed(Buffer.from('ta: 5\n\n')), false)
  assert.equal(decoder.resume(), false)
  assert.deepEqual(told, ['1', '2', '3', '4'])
  assert.equal(decoder.resume(), true)
  assert.deepEqual(told, ['1', '2', '3', '4', '5'])
  assert.equal(decoder.resume(), true)
})

test('a pause behind the last event of a chunk is none', () => {
  const decoder = new SseDecoder(1_000, () => false)
  assert.equal(decoder.feed(Buffer.from('data: 1\n\n')), true)
})
