import assert from 'node:assert/strict'
import { Readable } from 'node:stream'
import { test } from 'node:test'
import type { Overlong } from '../../src/protocol/overlong.ts'
import { LineReader, readLines } from '../../src/upstreams/stdio/lines.ts'

function read(limit: number, ...chunks: (string | Buffer)[]): (string | Overlong)[] {
  const reader = new LineReader(() => limit)
  const lines = chunks.flatMap((chunk) => [...reader.feed(Buffer.from(chunk))])
  return [...lines, ...reader.end()]
}

test('lines are the same however the bytes are cut', () => {
  const text = '{"a":"é😀"}\nsecond\r\n\nlast'
  const expected = ['{"a":"é😀"}', 'second', '', 'last']
  assert.deepEqual(read(100, text), expected)
  const bytes = Buffer.from(text)
  for (let size = 1; size < 8; size++) {
    const chunks = Array.from({ length: Math.ceil(bytes.length / size) }, (_, i) =>
      bytes.subarray(i * size, (i + 1) * size),
    )
    assert.deepEqual(read(100, ...chunks), expected, `chunks of ${size}`)
  }
})

test('a line of exactly the limit is whole', () => {
  assert.deepEqual(read(5, '12345\n', '123', '45\n'), ['12345', '12345'])
})

test('a line over the limit keeps its two ends, and the next line is whole', () => {
  const long = `head${'x'.repeat(5_000)}tail`
  for (const chunks of [
    [`${long}\nnext\n`],
    [...`${long}\nnext\n`],
    [long.slice(0, 90), long.slice(90), '\nnext\n'],
  ]) {
    const [first, second, ...rest] = read(100, ...chunks) as [Overlong, string]
    assert.match(first.head, /^headx+$/)
    assert.match(first.tail, /^x+tail$/)
    assert.ok(first.head.length <= 512 && first.tail.length <= 512)
    assert.equal(second, 'next')
    assert.deepEqual(rest, [])
  }
})

test('the two ends of a line just over the limit do not repeat its bytes', () => {
  const [line] = read(5, 'abc', 'def\n') as [Overlong]
  assert.deepEqual(line, { head: 'abcdef', tail: 'abcdef' })
})

test('a line over the limit that never ends keeps no memory', () => {
  const reader = new LineReader(() => 1_000)
  const chunk = Buffer.alloc(1024 ** 2, 'x')
  for (let i = 0; i < 16; i++) [...reader.feed(chunk)]
  const before = process.memoryUsage().arrayBuffers
  for (let i = 0; i < 256; i++) [...reader.feed(chunk)]
  assert.ok(process.memoryUsage().arrayBuffers - before < 8 * 1024 ** 2)
})

test('invalid text does not stop the reader', () => {
  const [noise, next] = read(100, Buffer.from([0xff, 0xfe, 0x00, 0x80, 0x0a]), 'next\n')
  assert.equal(typeof noise, 'string')
  assert.equal(next, 'next')
})

test('a stream that brings thousands of lines at once is read in many turns of the event loop', async () => {
  const chunk = Buffer.from('x\n'.repeat(10_000))
  let lines = 0
  let most = 0
  let inTurn = 0
  const reading = readLines(
    Readable.from([chunk]),
    () => 100,
    () => {
      lines++
      most = Math.max(most, ++inTurn)
    },
  )
  while (lines < 10_000) {
    await new Promise((resolve) => setImmediate(resolve))
    inTurn = 0
  }
  await reading
  assert.ok(most <= 512, `${most} lines in one turn`)
})
