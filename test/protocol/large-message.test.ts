import assert from 'node:assert/strict'
import { test } from 'node:test'
import { beginningOf, isSurelyLonger, LargeMessage } from '../../src/protocol/large-message.ts'
import { LongStrings } from '../../src/protocol/long-strings.ts'

const long = 'x'.repeat(20_000)

function read(text: string | Buffer): LargeMessage | undefined {
  const chunks = [Buffer.from(text)]
  const strings = new LongStrings()
  return strings.read(chunks[0]!) ? LargeMessage.read(chunks, strings) : undefined
}

/** A large message with one block of text, and the block. */
function withBlock(text: string) {
  const chunk = Buffer.from(JSON.stringify({ id: 1, result: { content: [{ type: 'text', text }] } }))
  const strings = new LongStrings()
  strings.read(chunk)
  const message = LargeMessage.read([chunk], strings)!
  const { content } = message.value.result as { content: Record<string, unknown>[] }
  return { message, block: content[0]!, chunk }
}

test('a long string is read when somebody asks for it, and once', () => {
  const { block, chunk } = withBlock(`${long}end`)
  chunk.write('E', chunk.indexOf('end'))
  assert.equal(block.text, `${long}End`)
  chunk.write('e', chunk.indexOf('End'))
  assert.equal(block.text, `${long}End`)
  assert.deepEqual(block, { type: 'text', text: `${long}End` })
})

test('the length of a long string is checked without reading the string, unless uncertain', () => {
  const { block } = withBlock(long)
  const isRead = () => Object.getOwnPropertyDescriptor(block, 'text')!.get === undefined
  assert.equal(isSurelyLonger(block, 'text', 3_000), true)
  // With escapes the text might be this short.
  assert.equal(isSurelyLonger(block, 'text', 4_000), false)
  assert.equal(isRead(), false)
  assert.equal(block.text, long)
  assert.equal(isSurelyLonger(block, 'text', 4_000), true)
  assert.equal(isSurelyLonger(block, 'text', long.length), false)
  assert.equal(isSurelyLonger({ text: 5 }, 'text', 0), false)
})

test('the beginning of a long string is known without the whole string', () => {
  for (const text of [
    `Ä${long}`,
    `${'日'.repeat(40)}${long}`,
    `{"a":1}${long}`,
    `a\n${long}`,
    `  a\n${long}`,
    `\n{"a":"${long}"}`,
    `${'\n'.repeat(20)}${'"\\'.repeat(40)}${long}`,
    `\u0001${'\ud800'.repeat(20)}${long}`,
  ]) {
    const { block } = withBlock(text)
    const beginning = beginningOf(block, 'text')!
    assert.ok(text.startsWith(beginning) && beginning.trim() !== '', beginning)
    assert.ok(beginning.length < 100)
    assert.equal(block.text, text)
    assert.equal(beginningOf(block, 'text'), text)
  }
})

test('the beginning of a long string may be nothing but escapes, wherever they are cut', () => {
  for (let space = 0; space < 12; space++) {
    const start = `${' '.repeat(space)}${'\\u65e5'.repeat(20)}`
    const chunk = Buffer.from(`{"text":"${start}${long}"}`)
    const strings = new LongStrings()
    strings.read(chunk)
    const { value } = LargeMessage.read([chunk], strings)!
    const beginning = beginningOf(value, 'text')!
    assert.match(beginning, /^ *日{8,10}$/)
  }
})

test('a long string that begins with nothing but white space is read for its beginning', () => {
  for (const text of [' '.repeat(20_000), `${' '.repeat(20_000)}{}`, `${'\n'.repeat(32)}{"a":"${long}"}`])
    assert.equal(beginningOf(withBlock(text).block, 'text'), text)
})

test('a value that is no text has no beginning', () => {
  assert.equal(beginningOf({ text: 1 }, 'text'), undefined)
  assert.equal(beginningOf({}, 'text'), undefined)
  assert.equal(beginningOf({ text: 'short' }, 'text'), 'short')
})

test('a copy of a large message has its text and its value, and not its bytes', () => {
  const { message, chunk } = withBlock(long)
  assert.ok(LargeMessage.is(message))
  assert.deepEqual(message.chunks, [chunk])
  const copy = { ...message, status: 404 }
  assert.equal(copy.text, chunk.toString())
  assert.equal(copy.value, message.value)
  assert.equal(LargeMessage.is(copy), false)
})

test('the last of equal keys counts, even without a long string', () => {
  const cases: readonly [string, unknown][] = [
    [`{"a":"${long}","a":"b"}`, { a: 'b' }],
    [`{"a":{"b":"${long}"},"a":{"b":1}}`, { a: { b: 1 } }],
    [`{"a":"b","a":"${long}"}`, { a: long }],
    [`{"a":"${long}","a":"${long}y"}`, { a: `${long}y` }],
    [`{"a":["${long}"],"\\u0061":{}}`, { a: {} }],
  ]
  for (const [text, value] of cases) assert.deepEqual(read(text)?.value, value)
})

test('top-level members are found by keys with and without escapes; overlong keys are skipped', () => {
  const chunk = Buffer.from(`{"\\u0069d":1,"${long}":{},"r\\u0065sult":"${long}"}`)
  const strings = new LongStrings()
  strings.read(chunk)
  const message = LargeMessage.read([chunk], strings)!
  // A JSON parser would now reject the message.
  chunk.write('\n', chunk.indexOf('xxx'))
  const spans = message.locate(['id', 'result'])!.map(({ start, end }) => chunk.toString('utf8', start, end))
  assert.deepEqual(spans, ['1', `"${long}"`])
})

test('a key may be long, deep, or a name that objects have by themselves', () => {
  const deep = `${'{"a":'.repeat(50)}"${long}"${'}'.repeat(50)}`
  for (const text of [
    `{"${long}":"${long}"}`,
    `{"__proto__":"${long}","constructor":{"__proto__":["${long}"]}}`,
    deep,
    `{"${'k'.repeat(300)}":"${long}"}`,
  ])
    assert.deepEqual(read(text)?.value, JSON.parse(text))
})

test('text that a JSON parser rejects is no large message', () => {
  for (const text of [
    `{"a":"${long}\n"}`,
    `{"a":"${long}\\x"}`,
    `{"a":"${long}\\u12g4"}`,
    `{"a":"${long}"`,
    `{"a":"${long}`,
    `{"a":"${long}"}}`,
    `{"a" "${long}"}`,
    `{"a":"${long}" "b"}`,
    `["${long}"]`,
    `\ufeff{"a":"${long}"}`,
    `${'{"a":'.repeat(200)}"${long}"${'}'.repeat(200)}`,
    Buffer.concat([Buffer.from(`{"a":"${long}`), Buffer.from([0xff]), Buffer.from('"}')]),
    Buffer.concat([Buffer.from(`{"a":"${long}`), Buffer.from([0xe6, 0x97]), Buffer.from('"}')]),
  ])
    assert.equal(read(text), undefined)
})

test('a message of many values or members is left to the code that explains refusals', () => {
  const many = (item: string, count: number) => Array.from({ length: count }, () => item).join()
  assert.equal(read(`{"a":[${many('1', 100_100)}]}`), undefined)
  assert.equal(read(`{"a":[${many('{"b":1}', 50_100)}]}`), undefined)
  assert.ok(read(`{"a":[${many('1', 90_000)}]}`))
})
