import assert from 'node:assert/strict'
import { test } from 'node:test'
import { SseDecoder, SseOverflow } from '../../src/protocol/sse.ts'

const LIMIT = 10_000

/** A decoder with that limit, and the sizes of what came out of it. */
function limited() {
  const sizes: number[] = []
  const decoder = new SseDecoder(LIMIT, ({ data }) => sizes.push(Buffer.byteLength(data)))
  return { sizes, feed: (text: string) => decoder.feed(Buffer.from(text)) }
}

test('an event up to the limit passes, also many in one chunk', () => {
  const { sizes, feed } = limited()
  const data = 'x'.repeat(LIMIT - 100)
  feed(`data: ${data}\n\n`.repeat(5))
  for (const half of [data.slice(0, 4_000), data.slice(4_000)]) feed(`data: ${half}\n`)
  feed('\n')
  assert.deepEqual(sizes, [9_900, 9_900, 9_900, 9_900, 9_900, 9_901])
})

test('a line that never ends is refused as soon as it is larger than the limit', () => {
  for (const field of ['data: ', ': comment ', 'id: ', 'anything ']) {
    const { feed } = limited()
    feed(field)
    for (let n = 0; n < 9; n++) feed('x'.repeat(1_000))
    assert.throws(() => feed('x'.repeat(1_001)), SseOverflow, field)
  }
})

test('an event of many lines is refused, however short or empty they are', () => {
  for (const line of [`data: ${'x'.repeat(99)}\n`, 'data: x\n', 'data:\n', 'data\n']) {
    const { feed } = limited()
    assert.throws(() => {
      for (let n = 0; n < LIMIT + 1; n++) feed(line)
    }, SseOverflow)
  }
})

test('an event that comes in one chunk is refused, too', () => {
  const { sizes, feed } = limited()
  assert.throws(() => feed(`data: ${'x'.repeat(LIMIT + 1)}\n\n`), SseOverflow)
  assert.deepEqual(sizes, [])
})

test('bytes are counted, not characters', () => {
  const { feed } = limited()
  assert.throws(() => feed(`data: ${'😀'.repeat(LIMIT / 4 + 1)}\n\n`), SseOverflow)
  assert.throws(() => {
    const other = limited()
    for (let n = 0; n < LIMIT / 4; n++) other.feed('data: 😀\n')
  }, SseOverflow)
})

test('what came before an event does not count against it', () => {
  const { sizes, feed } = limited()
  for (let n = 0; n < 100; n++) feed(`: ${'x'.repeat(900)}\ndata: ${'x'.repeat(900)}\n\n`)
  assert.equal(sizes.length, 100)
})
