import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { endsOf, type Overlong } from '../../src/protocol/overlong.ts'
import { SseDecoder, SseOverflow } from '../../src/protocol/sse.ts'

const LIMIT = 10_000

setFlagsFromString('--expose-gc')
const gc = runInNewContext('gc') as () => void

function heapUsed(): number {
  gc()
  return process.memoryUsage().heapUsed
}

/** A decoder with the limit, and the sizes of its events. */
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
  for (const field of ['data: ', 'id: ', 'anything ']) {
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

test('bytes before an event do not count against the event', () => {
  const { sizes, feed } = limited()
  for (let n = 0; n < 100; n++) feed(`: ${'x'.repeat(900)}\ndata: ${'x'.repeat(900)}\n\n`)
  assert.equal(sizes.length, 100)
})

/** The same, but skipping larger events: the events, and the ends of skipped events. */
function passingOver(stream: Buffer, chunkLength: number) {
  const told: (string | Overlong)[] = []
  const decoder = new SseDecoder(
    LIMIT,
    ({ data }) => told.push(data),
    (_, ends) => told.push(ends),
  )
  for (let at = 0; at < stream.length; at += chunkLength) {
    decoder.feed(stream.subarray(at, at + chunkLength))
    assert.ok(decoder.held <= LIMIT + chunkLength + 32 * 3_000, `${decoder.held} bytes`)
  }
  return { told, held: decoder.held }
}

test('an event over the limit can be skipped: its ends are given, and all later events', () => {
  const text = `{"jsonrpc":"2.0","id":7,"result":{"text":"${'0123456789'.repeat(2_000)}"}}`
  const answer = { head: text.slice(0, 512), tail: text.slice(-512) }
  const short = Array.from({ length: 3_000 }, (_, n) => `${n},`)
  const cases: readonly (readonly [string, Overlong])[] = [
    [`event: message\ndata: ${text}\n\n`, answer],
    [`data:${text}\r\n\r\n`, answer],
    [`id: 9\ndata: ${text}\nretry: 5\nother: ${text}\n: ${text}\n\n`, answer],
    [`data: ${short.join('\ndata: ')}\n\n`, endsOf(short.join('\n'))],
  ]
  for (const [event, ends] of cases) {
    const stream = Buffer.from(`data: before\n\n${event}data: behind\n\n`)
    for (const chunkLength of [1, 7, 1_000, stream.length]) {
      const { told, held } = passingOver(stream, chunkLength)
      const name = `${event.slice(0, 20)} in chunks of ${chunkLength}`
      assert.deepEqual([told[0], told.at(-1), held], ['before', 'behind', 0], name)
      assert.equal(told.length, 3, name)
      const { head, tail } = told[1] as Overlong
      assert.deepEqual([head.trimEnd(), tail.trimStart()], [ends.head.trimEnd(), ends.tail.trimStart()], name)
    }
  }
})

test('a comment of any length is no part of an event', () => {
  for (const chunkLength of [1, 7, 100_000]) {
    const { told } = passingOver(Buffer.from(`: ${'x'.repeat(2 * LIMIT)}\ndata: a\n\n`), chunkLength)
    assert.deepEqual(told, ['a'])
  }
})

test('an event that is passed over leaves its id behind, nothing to be emitted, and none of its bytes', () => {
  const seen: (string | undefined)[] = []
  const decoder = new SseDecoder(
    LIMIT,
    ({ id, data }) => seen.push(id, data),
    (id) => seen.push(id),
  )
  const feed = (text: string) => decoder.feed(Buffer.from(text))
  feed('id: 1\ndata: a\n\n')
  feed(`data: ${'x'.repeat(2 * LIMIT)}\nid: 2\n\n`)
  feed(': ping\n\n')
  feed(`id: 3\ndata: ${'x'.repeat(2 * LIMIT)}\n\n`)
  feed('\ndata: b\n\n')
  assert.deepEqual(seen, ['1', 'a', '2', '3', '3', 'b'])
})

test('only the ends of a skipped line are kept', () => {
  const decoder = new SseDecoder(
    16 * 1024 ** 2,
    () => true,
    () => undefined,
  )
  const line = Buffer.from(`data: ${'x'.repeat(15 * 1024 ** 2)}\n`)
  const before = heapUsed()
  for (let n = 0; n < 4; n++) decoder.feed(line)
  const kept = heapUsed() - before
  assert.ok(kept < 4 * 1024 ** 2, `${kept} bytes`)
  assert.equal(decoder.held, 0)
})
