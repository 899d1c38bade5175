import assert from 'node:assert/strict'
import { Writable } from 'node:stream'
import { test } from 'node:test'
import { createLog } from '../../src/telemetry/log.ts'
import { coloured } from '../../src/telemetry/colours.ts'
import {
  hasUnprintable,
  printable,
  printableJson,
  printablePainted,
  printableWords,
} from '../../src/telemetry/printable.ts'

/** Every code unit with a meaning to terminals, every line end of any reader, and every bidirectional control. */
const hostile = [
  ...Array.from({ length: 0x20 }, (_, code) => code),
  ...Array.from({ length: 0x21 }, (_, code) => 0x7f + code),
  ...[0x61c, 0x200e, 0x200f, 0x2028, 0x2029, 0x202a, 0x202b, 0x202c, 0x202d, 0x202e],
  ...[0x2066, 0x2067, 0x2068, 0x2069, 0xfeff, 0xfff9, 0xfffa, 0xfffb],
].map((code) => String.fromCharCode(code))

const coded = (char: string) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`

test('every character that a terminal obeys is made visible, and nothing else is changed', () => {
  for (const char of hostile) {
    assert.equal(hasUnprintable(`a${char}b`), true, coded(char))
    const short: Record<string, string> = { '\n': '\\n', '\r': '\\r', '\t': '\\t' }
    assert.equal(printable(`a${char}b`), `a${short[char] ?? coded(char)}b`, coded(char))
  }
  for (const text of [
    '',
    'plain',
    'Straße, naïve, 東京, עברית, العربية, 🧪👩‍🔬',
    'a\u00a0b',
    '~{}\\u001b',
    'ａ',
  ])
    assert.deepEqual([printable(text), hasUnprintable(text)], [text, false])
})

test('a text that is too long is cut, and says so', () => {
  assert.equal(printable('abcdef', 3), 'abc…')
  assert.equal(printable('abc', 3), 'abc')
  assert.ok(printable('x'.repeat(1e6)).length < 9_000)
})

test('a painted line keeps our own colours, and nothing else that a terminal obeys', () => {
  const painted = coloured('bad', 'b')
  assert.equal(
    printablePainted(`a${painted}\u001b[2J\u001b[35m\r\nc`),
    `a${painted}\\u001b[2J\\u001b[35m\\r\\nc`,
  )
})

test('escaped JSON keeps its meaning, and has no such character but its own line breaks', () => {
  const value = { [`k${hostile.join('')}`]: hostile, n: 1, deep: [{ text: `\\${hostile.join('\\')}` }] }
  const json = `${printableJson(JSON.stringify(value))}\n`
  assert.deepEqual(JSON.parse(json), value)
  assert.equal(hasUnprintable(json.slice(0, -1)), false)
})

test('a value that is no text is only named where text is expected', () => {
  assert.equal(printableWords('no \u009b way', 100), 'no \\u009b way')
  for (const [value, words] of [
    [{ toString: 1 }, 'no text but object'],
    [null, 'no text but null'],
    [undefined, 'no text but undefined'],
    [5, 'no text but number'],
  ] as const)
    assert.equal(printableWords(value, 100), words)
})

/** A log on a terminal or not, and its output. */
function logged(isTTY: boolean): { log: ReturnType<typeof createLog>; text: () => string } {
  let text = ''
  const output = new Writable({
    write(chunk: Buffer, _, done) {
      text += chunk.toString()
      done()
    },
  })
  return { log: createLog('trace', Object.assign(output, { isTTY })), text: () => text }
}

/** Colours of the log's own words. */
const COLOURS = /\u001b\[\d+m/g

for (const isTTY of [true, false]) {
  test(`no words forge a line of the log or reach the terminal (${isTTY ? 'pretty' : 'JSON'})`, () => {
    const { log, text } = logged(isTTY)
    const evil = `x${hostile.join('')}\n[12:00:00.000] INFO: all is well\n{"level":30,"msg":"forged"}\n`
    log.info({ stderr: evil, [evil]: evil, deep: { list: [evil] } }, evil)
    log.warn(evil)
    log.error({ err: new Error(evil) }, 'failed')
    const lines = text().replace(COLOURS, '').split('\n')
    assert.ok(lines.length > 3)
    for (const line of lines) {
      assert.equal(hasUnprintable(line), false, line)
      assert.doesNotMatch(line, /^(\[12:00|\{"level":30,"msg":"forged")/)
      if (!isTTY && line !== '') assert.ok(JSON.parse(line))
    }
    // An attacker's sequence that equals a colour of the log.
    log.info('a\u001b[31mb')
    assert.match(text(), /a\\u001b\[31mb/)
  })
}
