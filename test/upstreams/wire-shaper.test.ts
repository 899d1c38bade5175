import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Cancellation } from '../../src/mesh/cancel.ts'
import type { WireShape } from '../../src/mesh/wire-shape.ts'
import { WireShaper, WireShapers } from '../../src/wire/shaper.ts'
import { ManualClock } from '../support/manual-clock.ts'

function shaped(plan: Pick<WireShape, 'pace' | 'incident'>) {
  const clock = new ManualClock()
  const released = new Cancellation()
  const done = { bytes: 0, messages: 0, hasHappened: false }
  const passed: Buffer[] = []
  const ends: string[] = []
  let held = 0
  const shape: WireShape = {
    clock,
    released,
    ...plan,
    holds(settled) {
      held++
      void settled.then(() => held--)
    },
    done,
  }
  const shaper = new WireShaper(shape, {
    pass(bytes, told) {
      if (bytes.length > 0) passed.push(bytes)
      told?.()
    },
    reset: () => void ends.push('reset'),
    close: () => void ends.push('close'),
  })
  return {
    clock,
    released,
    done,
    ends,
    shaper,
    push: (text: string) => shaper.pass(Buffer.from(text)),
    /** The bytes that passed, portion by portion; the head counts as one portion. */
    portions: () => passed.flatMap((bytes) => headAndRest(bytes.toString('latin1'))),
    text: () => Buffer.concat(passed).toString(),
    held: () => held,
  }
}

/** A head goes out together with the portion that may follow at once. */
function headAndRest(text: string): string[] {
  const at = text.startsWith('HTTP/') ? text.indexOf('\r\n\r\n') + 4 : 0
  return [text.slice(0, at), text.slice(at)].filter((part) => part !== '')
}

const head = 'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 10\r\n\r\n'
const streamHead = 'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n'
const chunk = (text: string) => `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`
const note = (n: number) => `data: {"method":"notifications/progress","params":{"progress":${n}}}\n\n`
const answer = 'data: {"jsonrpc":"2.0","id":1,"result":{}}\n\n'

test('the head passes at once, and the body in portions with gaps between them, also within a character', async () => {
  const { push, portions, clock, held, done } = shaped({ pace: { bytes: 4, gapMs: 100 } })
  push(`${head}abcäöü9`)
  assert.deepEqual(portions(), [head, 'abc\xc3'])
  assert.equal(held(), 1)
  await clock.advance(99)
  assert.equal(portions().length, 2)
  await clock.advance(1)
  assert.deepEqual(portions().slice(2), ['\xa4\xc3\xb6\xc3'])
  await clock.advance(100)
  assert.deepEqual(portions().slice(3), ['\xbc9'])
  assert.equal(held(), 0)
  assert.equal(clock.pending, 0)
  assert.deepEqual(done, { bytes: 10, messages: 0, hasHappened: true })
})

test('a pace is kept by timers that fire late, and after a long silence no more than one portion catches up', async () => {
  const { push, portions, clock } = shaped({ pace: { bytes: 1, gapMs: 10 } })
  const { after } = clock
  let lateMs = 2
  clock.after = (ms, task) => after.call(clock, ms + lateMs, task)
  push(`${head}01234`)
  const at: number[] = []
  for (let ms = 0; portions().length < 6; ms++) {
    at.push(...Array.from({ length: portions().length - 1 - at.length }, () => ms))
    await clock.advance(1)
  }
  // Due at 10, 20, 30 and 40, each 2 ms late.
  assert.deepEqual(at, [0, 12, 22, 32])
  lateMs = 0
  await clock.advance(1_000)
  push('56789')
  assert.equal(portions().at(-1), '4')
  await clock.advance(0)
  assert.equal(portions().slice(6).join(''), '56')
  await clock.advance(9)
  assert.equal(portions().slice(6).join(''), '56')
  await clock.advance(1)
  assert.equal(portions().slice(6).join(''), '567')
})

test('bytes that come one by one fill portions as well', async () => {
  const { push, text, clock } = shaped({ pace: { bytes: 4, gapMs: 100 } })
  push(head)
  for (const byte of '0123456789') push(byte)
  assert.equal(text(), `${head}0123`)
  await clock.advance(100)
  assert.equal(text(), `${head}01234567`)
  await clock.advance(100)
  assert.equal(text(), `${head}0123456789`)
})

test('bytes pushed during a write come after all bytes of the write', () => {
  const { shaper, text } = shaped({ incident: { kind: 'reset', at: { bytes: 1_000 } } })
  const more = () => shaper.pass(Buffer.from('9'))
  shaper.pass(Buffer.from(head), more)
  assert.equal(text(), `${head}9`)
  const stream = shaped({ incident: { kind: 'close', at: { messages: 9 } } })
  stream.push(`${streamHead}${chunk('data: {"method":')}`)
  stream.shaper.pass(Buffer.from(chunk('"a"}\n')), () => stream.push(chunk(note(2))))
  stream.push(chunk('\n'))
  assert.equal(
    stream.text(),
    `${streamHead}${chunk('data: {"method":')}${chunk('"a"}\n')}${chunk('\n')}${chunk(note(2))}`,
  )
})

test('a release sends everything at once, in order', () => {
  const { push, text, released, clock } = shaped({ pace: { bytes: 1, gapMs: 100 } })
  push(`${head}0123456789`)
  released.abort('ended')
  assert.equal(text(), `${head}0123456789`)
  assert.equal(clock.pending, 0)
})

test('a reset comes before the first byte, or behind exactly as many bytes as it is to, when they have been read', async () => {
  const early = shaped({ incident: { kind: 'reset', at: 'head' } })
  early.push(`${head}0123456789`)
  assert.deepEqual([early.text(), early.ends], ['', ['reset']])
  const later = shaped({ incident: { kind: 'reset', at: { bytes: 4 } } })
  later.push(`${head}01`)
  later.push('2345')
  later.push('6789')
  assert.deepEqual(later.ends, [])
  await later.clock.advance(20)
  assert.deepEqual([later.text(), later.ends], [`${head}0123`, ['reset']])
})

test("a reply no longer than the fault's offset passes whole", () => {
  const { push, text, ends, shaper, done } = shaped({ incident: { kind: 'reset', at: { bytes: 10 } } })
  push(`${head}0123456789`)
  shaper.end()
  assert.deepEqual([text(), ends, done.hasHappened], [`${head}0123456789`, ['close'], false])
})

test('chunk framing of HTTP does not count, however it is cut on the way', async () => {
  const { push, text, ends, clock } = shaped({ incident: { kind: 'reset', at: { bytes: 6 } } })
  const whole = `${streamHead}${chunk('abcd')}${chunk('efgh')}0\r\n\r\n`
  for (const byte of whole) push(byte)
  await clock.advance(20)
  assert.deepEqual([text(), ends], [`${streamHead}${chunk('abcd')}4\r\nef`, ['reset']])
})

test('a stream closes behind its messages, not counting keep-alive comments', () => {
  const { push, text, ends, done } = shaped({ incident: { kind: 'close', at: { messages: 2 } } })
  push(`${streamHead}${chunk(': alive\n\n')}${chunk(note(1))}`)
  assert.deepEqual(ends, [])
  push(chunk(note(2)))
  assert.deepEqual(ends, ['close'])
  assert.ok(text().endsWith(note(2)))
  assert.equal(done.messages, 2)
})

test('an answer that comes before its messages is hit itself, as is a reply that is no stream', () => {
  const stream = shaped({ incident: { kind: 'close', at: { messages: 5 } } })
  stream.push(`${streamHead}${chunk(note(1))}${chunk(answer)}`)
  assert.ok(stream.text().includes(note(1)) && !stream.text().includes('result'))
  assert.deepEqual(stream.ends, ['close'])
  const plain = shaped({ incident: { kind: 'close', at: { messages: 5 } } })
  plain.push(`${head}0123456789`)
  assert.deepEqual([plain.text(), plain.ends], [head, ['close']])
})

test('bytes outside events pass at once: a byte order mark, empty lines, and keep-alive comments', () => {
  const { push, text } = shaped({ incident: { kind: 'close', at: { messages: 1 } } })
  for (const idle of ['\ufeff', '\n', ': alive\n', '\r\n', ': half']) {
    push(`${idle === '\ufeff' ? streamHead : ''}${chunk(idle)}`)
    assert.ok(text().endsWith(chunk(idle)), JSON.stringify(idle))
  }
  push(chunk(' a sign\n'))
  push(chunk('data: {"method":"a"}\n'))
  assert.ok(!text().includes('method'))
})

test('an event of any size can be waited for: what is held back for it is no reason to read no more', () => {
  const { push, shaper, text } = shaped({ incident: { kind: 'close', at: { messages: 5 } } })
  push(streamHead)
  for (let n = 0; n < 20; n++) push(chunk(`${n === 0 ? 'data: {"method":"' : ''}${'x'.repeat(10_000)}`))
  assert.equal(shaper.waiting, 0)
  push(chunk('"}\n\n'))
  assert.ok(text().endsWith(chunk('"}\n\n')))
})

test('an answer that has a member of the name "method" in it is an answer', () => {
  const { push, ends } = shaped({ incident: { kind: 'close', at: { messages: 5 } } })
  push(`${streamHead}${chunk('data: {"id":1,"result":{"structuredContent":{"method":"GET"}}}\n\n')}`)
  assert.deepEqual(ends, ['close'])
})

for (const cut of ['whole', 'in chunks of a byte'])
  test(`an event that is too long to be held back is known by its beginning, ${cut}`, () => {
    const long = (message: string) => `data: {"jsonrpc":"2.0",${message},"x":"${'x'.repeat(1_200_000)}"}\n\n`
    const result = long('"id":1,"result":{"method":"a"}')
    const sent = (text: string) => (cut === 'whole' ? chunk(text) : [...text].map(chunk).join(''))
    const feed = (push: (text: string) => void, text: string) => {
      push(streamHead)
      // Node reads at most this much from a socket at a time.
      for (let at = 0; at < text.length; at += 65_536) push(text.slice(at, at + 65_536))
    }
    const incident = (kind: 'close' | 'garble', messages: number) => ({
      incident: { kind, at: { messages } },
    })

    const closed = shaped(incident('close', 0))
    feed(closed.push, sent(result))
    assert.deepEqual([closed.done.bytes, closed.ends], [0, ['close']])

    const behind = shaped(incident('close', 1))
    const progress = long('"method":"notifications/progress","params":{"result":1}')
    feed(behind.push, sent(progress + answer))
    assert.deepEqual([behind.done.messages, behind.ends], [1, ['close']])
    assert.equal(behind.done.bytes, progress.length)

    const garbled = shaped(incident('garble', 0))
    feed(garbled.push, sent(result))
    assert.equal(garbled.done.hasHappened, true)
    assert.equal(garbled.text(), streamHead + sent(result.replace('{', '<')))
  })

test('the data of an event is garbled, and no other line of it', () => {
  const { push, text } = shaped({ incident: { kind: 'garble', at: { messages: 0 } } })
  push(`${streamHead}${chunk('id: {1}\ndata: ')}${chunk('{"method":"a"}\n\n')}`)
  assert.equal(text(), `${streamHead}${chunk('id: {1}\ndata: ')}${chunk('<"method":"a"}\n\n')}`)
})

test('events end by an empty line, whichever way lines end, and wherever bytes are cut', () => {
  for (const end of ['\n', '\r', '\r\n']) {
    const { push, ends } = shaped({ incident: { kind: 'close', at: { messages: 1 } } })
    for (const byte of `${streamHead}${chunk(`id: 1${end}data: {"method":"a"}${end}`)}`) push(byte)
    assert.deepEqual(ends, [], JSON.stringify(end))
    for (const byte of chunk(end)) push(byte)
    assert.deepEqual(ends, ['close'], JSON.stringify(end))
  }
})

test('the message behind those that pass is garbled, with as many bytes, and the stream goes on', () => {
  const { push, text, ends } = shaped({ incident: { kind: 'garble', at: { messages: 1 } } })
  push(`${streamHead}${chunk(note(1))}${chunk(note(2))}${chunk(note(3))}`)
  assert.equal(text(), `${streamHead}${chunk(note(1))}${chunk(note(2).replace('{', '<'))}${chunk(note(3))}`)
  assert.deepEqual(ends, [])
})

test('a message is garbled although its bytes come one by one', () => {
  const { push, text } = shaped({ incident: { kind: 'garble', at: { messages: 0 } } })
  for (const byte of `${streamHead}${chunk('event: message\n')}${chunk(note(1))}`) push(byte)
  assert.equal(text(), `${streamHead}${chunk('event: message\n')}${chunk(note(1).replace('{', '<'))}`)
})

test('a stall holds back what comes behind its messages, and then everything comes in order', async () => {
  const { push, text, clock } = shaped({ incident: { kind: 'stall', at: { messages: 1 }, stallMs: 500 } })
  push(`${streamHead}${chunk(note(1))}`)
  push(chunk(note(2)))
  assert.ok(!text().includes('"progress":2'))
  await clock.advance(499)
  assert.ok(!text().includes('"progress":2'))
  await clock.advance(1)
  push(chunk(answer))
  assert.equal(text(), `${streamHead}${chunk(note(1))}${chunk(note(2))}${chunk(answer)}`)
})

test('a timed incident happens at its time at the latest, and never after a release', async () => {
  const incident = { kind: 'reset', at: { bytes: Infinity }, latestMs: 1_000 } as const
  const late = shaped({ incident })
  late.push(`${head}01`)
  await late.clock.advance(1_020)
  assert.deepEqual([late.text(), late.ends], [`${head}01`, ['reset']])
  const lifted = shaped({ incident })
  lifted.push(`${head}01`)
  lifted.released.abort('ended')
  await lifted.clock.advance(2_000)
  lifted.push('23')
  assert.deepEqual([lifted.text(), lifted.ends, lifted.clock.pending], [`${head}0123`, [], 0])
})

test('a reset that is lifted in the time that it leaves for what came before has not happened', async () => {
  const { push, text, ends, done, released, clock } = shaped({
    incident: { kind: 'reset', at: { bytes: 4 } },
  })
  push(`${head}0123456789`)
  assert.equal(text(), `${head}0123`)
  released.abort('killed')
  assert.deepEqual([text(), ends, done.hasHappened], [`${head}0123456789`, [], false])
  await clock.advance(1_000)
  assert.deepEqual([ends, clock.pending], [[], 0])
})

test('each reply of a retried call counts anew, and an incident in one reply does not repeat in the next', async () => {
  const clock = new ManualClock()
  const done = { bytes: 0, messages: 0, hasHappened: false }
  const incident = { kind: 'reset', at: { bytes: 12 } } as const
  const shape: WireShape = { clock, released: new Cancellation(), incident, done }
  const replies = [1, 2, 3].map(() => {
    const seen = { text: '', ends: 0 }
    const end = {
      pass: (bytes: Buffer) => void (seen.text += bytes.toString()),
      reset: () => void seen.ends++,
      close() {},
    }
    return { seen, send: (text: string) => new WireShaper(shape, end).pass(Buffer.from(text)) }
  })
  const [lost, next, last] = replies as [(typeof replies)[0], (typeof replies)[0], (typeof replies)[0]]
  lost.send(`${head}0123456789`)
  next.send(`${head}0123456789`)
  assert.deepEqual([next.seen.text, next.seen.ends], [`${head}0123456789`, 0])
  last.send(`${head}0123456789abc`)
  await clock.advance(20)
  assert.deepEqual([last.seen.text, last.seen.ends], [`${head}0123456789ab`, 1])
  next.send(`${head}0123456789abc`)
  assert.deepEqual([next.seen.text, next.seen.ends], [`${head}0123456789${head}0123456789abc`, 0])
})

/** A reply on its way through several faults; the effect of the first comes last. */
function together(...plans: Pick<WireShape, 'pace' | 'incident'>[]) {
  const clock = new ManualClock()
  const released = new Cancellation()
  const passed: string[] = []
  const ends: string[] = []
  let over = 0
  const shapes = plans.map((plan): WireShape => {
    const done = { bytes: 0, messages: 0, hasHappened: false }
    return { clock, released, ...plan, done, over: () => void over++ }
  })
  const shapers = new WireShapers(shapes, {
    pass(bytes, told) {
      if (bytes.length > 0) passed.push(bytes.toString())
      told?.()
    },
    reset: () => void ends.push('reset'),
    close: () => void ends.push('close'),
  })
  const push = (text: string) => shapers.push(Buffer.from(text))
  return { clock, shapers, shapes, push, ends, passed, over: () => over }
}

test('each of two faults shapes the output of the fault behind it, and a cut waits for dripping bytes before it', async () => {
  const { clock, push, ends, passed, shapes, over } = together(
    { pace: { bytes: 20, gapMs: 100 } },
    { incident: { kind: 'close', at: { messages: 1 } } },
  )
  const event = 'data: {"method":"a","x":"abcdefgh"}\n\n'
  push('HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n')
  push(event + event)
  assert.deepEqual([passed.at(-1), ends], [event.slice(0, 20), []])
  await clock.advance(100)
  assert.deepEqual([passed.at(-1), ends], [event.slice(20), ['close']])
  assert.deepEqual([shapes.map(({ done }) => done.hasHappened), over(), clock.pending], [[true, true], 2, 0])
})

test('a reset by either of two faults ends the reply for both, once', async () => {
  const head = 'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n'
  const cut = { incident: { kind: 'close', at: { messages: 1 } } } as const
  const reset = { incident: { kind: 'reset', at: 'head' } } as const
  for (const plans of [
    [reset, cut],
    [cut, reset],
  ]) {
    const { clock, shapers, push, ends, passed, over } = together(...plans)
    push(`${head}data: {"method":"a"}\n\n`)
    push('data: {"method":"b"}\n\n')
    shapers.end()
    assert.deepEqual([passed, ends, over(), clock.pending], [[], ['reset'], 2, 0])
  }
})

test('a million bytes, each by itself, cost time that grows with their number only', () => {
  const time = (size: number) => {
    const { push } = shaped({ incident: { kind: 'close', at: { messages: 5 } } })
    push(streamHead)
    const since = process.cpuUsage()
    for (let at = 0; at < size; at++) push('1\r\nx\r\n')
    const { user, system } = process.cpuUsage(since)
    return user + system
  }
  time(10_000)
  // With quadratic work, ten times the bytes would take a hundred times as long.
  assert.ok(time(100_000) < 40 * time(10_000))
})
