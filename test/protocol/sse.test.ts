import assert from 'node:assert/strict'
import { test } from 'node:test'
import { encodeEvent, SseDecoder, type SseEvent } from '../../src/protocol/sse.ts'
import { pick, seeded } from '../support/random.ts'

const LIMIT = 1024 ** 2

/** Returns the events of a stream in these chunks. */
function decode(chunks: readonly (string | Buffer)[], limit = LIMIT): SseEvent[] {
  const events: SseEvent[] = []
  const decoder = new SseDecoder(limit, (event) => events.push(event))
  for (const chunk of chunks) decoder.feed(Buffer.from(chunk))
  return events
}

/** An event with data, and other fields only if given. */
const event = (data: string, more: Partial<SseEvent> = {}): SseEvent => ({
  type: 'message',
  data,
  id: undefined,
  retryMs: undefined,
  ...more,
})

test('an event ends with an empty line, and one that did not end yet is not told', () => {
  assert.deepEqual(decode(['data: a\n\ndata: b\n\ndata: c\n']), [event('a'), event('b')])
})

test('lines end with LF, CR or both', () => {
  for (const end of ['\n', '\r', '\r\n']) {
    const stream = ['id: 1', 'data: a', 'data: b', '', 'data: c', '', ''].join(end)
    assert.deepEqual(
      decode([stream]),
      [event('a\nb', { id: '1' }), event('c', { id: '1' })],
      JSON.stringify(end),
    )
  }
  assert.deepEqual(decode(['data: a\r\n\ndata: b\r\r\ndata: c\n\r']), [event('a'), event('b'), event('c')])
})

test('one space behind the colon belongs to the syntax, more to the value', () => {
  assert.deepEqual(decode(['data:a\n\ndata: a\n\ndata:  a\n\ndata:\ta\n\ndata:a: b\n\n']), [
    event('a'),
    event('a'),
    event(' a'),
    event('\ta'),
    event('a: b'),
  ])
})

test('data of several lines is joined, and a field without a colon has an empty value', () => {
  assert.deepEqual(decode(['data: a\ndata\ndata:\ndata: b\n\n']), [event('a\n\n\nb')])
  assert.deepEqual(decode(['data\n\n']), [event('')])
})

test('comments and unknown fields are nothing', () => {
  assert.deepEqual(decode([': hi\n:\n\nfoo: bar\n\n data: a\nDATA: b\n\n']), [])
  assert.deepEqual(decode([': hi\ndata: a\nfoo: bar\n: there\ndata: b\n\n']), [event('a\nb')])
})

test('a type holds for its own event, an id for all that follow, a retry time for its own', () => {
  const stream = 'event: endpoint\nid: 7\nretry: 250\ndata: a\n\ndata: b\n\nid\ndata: c\n\n'
  assert.deepEqual(decode([stream]), [
    event('a', { type: 'endpoint', id: '7', retryMs: 250 }),
    event('b', { id: '7' }),
    event('c', { id: '' }),
  ])
})

test('an id or a retry time without data gives empty data', () => {
  assert.deepEqual(decode(['id: 1\n\nretry: 100\n\n\n\n']), [
    event('', { id: '1' }),
    event('', { id: '1', retryMs: 100 }),
  ])
})

test('an id with a NUL and a retry time that is no number are passed over', () => {
  assert.deepEqual(decode(['id: 1\nid: 2\0\nretry: 1s\nretry: -1\nretry:\ndata: a\n\n']), [
    event('a', { id: '1' }),
  ])
})

test('a retry time is no longer than a timer can be', () => {
  assert.deepEqual(decode(['retry: 99999999999999999999\n\n']), [event('', { retryMs: 2 ** 31 - 1 })])
})

test('a byte order mark at the start is no part of the first line, and a later mark is', () => {
  assert.deepEqual(decode(['\ufeffdata: a\n\n']), [event('a')])
  assert.deepEqual(decode(['\ufeff\ufeffdata: a\n\n\ufeffdata: b\n\n']), [])
  assert.deepEqual(decode(['data: \ufeffa\n\n']), [event('\ufeffa')])
})

const TOUGH =
  '\ufeffid: é1\r\ndata: {"text":"ü😀\u2028"}\r\n\r\n: ping\r\revent: x\rdata: a\rdata\r\rretry: 9\n\ndata: b\r\n\ndata: c\n\n'

test('where a stream is cut makes no difference, at every byte', () => {
  const bytes = Buffer.from(TOUGH)
  const whole = decode([bytes])
  assert.equal(whole.length, 5)
  assert.deepEqual(decode([...bytes].map((byte) => Buffer.of(byte))), whole)
  for (let at = 0; at <= bytes.length; at++) {
    assert.deepEqual(decode([bytes.subarray(0, at), bytes.subarray(at)]), whole, `cut at ${at}`)
    assert.deepEqual(
      decode([bytes.subarray(0, at), '', bytes.subarray(at)]),
      whole,
      `cut at ${at}, empty chunk`,
    )
  }
})

test('streams of any shape say the same in any chunks', () => {
  const random = seeded(20_260_728)
  const pieces = [
    'data: ü',
    'data',
    'id: 1',
    'event: e',
    'retry: 5',
    ':',
    '',
    '',
    '\n',
    '\r',
    '\r\n',
    '\n',
    '\r',
    '\r\n',
  ]
  for (let i = 0; i < 3_000; i++) {
    const bytes = Buffer.from(Array.from({ length: 30 }, () => pick(random, pieces)).join(''))
    const chunks: Buffer[] = []
    for (let at = 0; at < bytes.length;) {
      const end = at + 1 + Math.floor(random() * 6)
      chunks.push(bytes.subarray(at, end))
      at = end
    }
    assert.deepEqual(decode(chunks), decode([bytes]), JSON.stringify(bytes.toString()))
  }
})

test('a written message comes back unchanged, with a space for each line break', () => {
  assert.equal(encodeEvent('{"a":1}'), 'event: message\ndata: {"a":1}\n\n')
  for (const data of [
    '',
    ' a',
    '{"a":1}',
    '{\n"a":\r\n1}',
    '\n',
    'data: x\n\n',
    '\u2028',
    '{\r"é": "\u2028"}',
  ]) {
    const written = event(data.replace(/[\r\n]/g, ' '), { id: '3-7' })
    assert.deepEqual(decode([encodeEvent(data, '3-7')]), [written], JSON.stringify(data))
  }
  const breaks = `{${'\r\n'.repeat(1_000_000)}}`
  assert.equal(encodeEvent(breaks).length, 'event: message\ndata: \n\n'.length + breaks.length)
})
