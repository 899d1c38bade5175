import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  elements,
  locate,
  members,
  prependMember,
  replaceAt,
  splice,
  type JsonPath,
} from '../../src/protocol/json-span.ts'
import { parseExactly } from '../../src/protocol/json-parse.ts'
import { pick, seeded } from '../support/random.ts'

/** Returns the text found by `locate`; undefined if absent. */
function textAt(text: string, path: JsonPath): string | undefined {
  const span = locate(text, path)
  return span && text.slice(span.start, span.end)
}

test('the empty path is the whole value without the white space around it', () => {
  assert.equal(textAt(' \r\n\t{"a": 1} \n', []), '{"a": 1}')
  assert.equal(textAt(' 12.50 ', []), '12.50')
  assert.equal(textAt('"a b"', []), '"a b"')
  assert.equal(textAt('null', []), 'null')
})

test('every kind of value is found with its exact text', () => {
  const values = [
    '0',
    '-0',
    '1e400',
    '-1.50E+10',
    '12345678901234567890',
    'true',
    'false',
    'null',
    '""',
    '"x"',
    '{}',
    '[]',
  ]
  for (const value of values) {
    assert.equal(textAt(`{"before":[1],"v":${value},"after":{}}`, ['v']), value)
    assert.equal(textAt(`{ "v" :\t${value}\n}`, ['v']), value)
    assert.equal(textAt(`[0, ${value} ,2]`, [1]), value)
    assert.equal(textAt(`[${value}]`, [0]), value)
  }
})

test('a path leads through objects and arrays', () => {
  const text = '{"a":[{"b":"no"},{"b":{"c":[[],[1,2,{"d":"yes"}]]}}]}'
  assert.equal(textAt(text, ['a', 1, 'b', 'c', 1, 2, 'd']), '"yes"')
  assert.equal(textAt(text, ['a', 0]), '{"b":"no"}')
})

test('a missing path is not found', () => {
  const text = '{"a":{"b":[1,2]},"s":"text","n":null}'
  const absent: JsonPath[] = [
    ['b'],
    ['a', 'c'],
    ['a', 'b', 2],
    ['a', 'b', -1],
    ['a', 'b', 0.5],
    ['a', 0],
    ['s', 'length'],
    ['n', 'x'],
    [0],
  ]
  for (const path of absent) assert.equal(locate(text, path), undefined, JSON.stringify(path))
  assert.equal(locate('{}', ['a']), undefined)
  assert.equal(locate('[ ]', [0]), undefined)
  assert.equal(locate('7', ['a']), undefined)
})

test('names are compared as JSON.parse reads them', () => {
  assert.equal(textAt('{"\\u0069\\u0064":1}', ['id']), '1')
  assert.equal(textAt('{"a\\"b":1,"a\\\\":2,"a\\/b":3}', ['a"b']), '1')
  assert.equal(textAt('{"a\\"b":1,"a\\\\":2,"a\\/b":3}', ['a\\']), '2')
  assert.equal(textAt('{"a\\"b":1,"a\\\\":2,"a\\/b":3}', ['a/b']), '3')
  assert.equal(textAt('{"":1," ":2}', ['']), '1')
  assert.equal(textAt('{"__proto__":1,"constructor":2}', ['__proto__']), '1')
  assert.equal(textAt('{"naïve 😀":1}', ['naïve 😀']), '1')
  assert.equal(textAt('{"\\ud83d\\ude00":1}', ['😀']), '1')
})

test('quotes, brackets and commas inside strings are text', () => {
  assert.equal(textAt('{"a":"}],\\"id\\":9,{[","id":1}', ['id']), '1')
  assert.equal(textAt('{"a":{"x":"\\\\"},"id":1}', ['id']), '1')
  assert.equal(textAt('{"a":"\\\\\\"","id":1}', ['id']), '1')
  assert.equal(textAt('[["]"],"\\\\\\\\",2]', [2]), '2')
  assert.equal(textAt('{"{\\"id\\":2}":0,"id":1}', ['id']), '1')
})

test('the last of duplicate names counts, at every level', () => {
  assert.equal(textAt('{"id":1,"id":2}', ['id']), '2')
  assert.equal(textAt('{"id":1,"\\u0069d":3}', ['id']), '3')
  assert.equal(textAt('{"p":{"x":1},"p":{"x":2,"x":3}}', ['p', 'x']), '3')
  assert.equal(locate('{"p":{"x":1},"p":{}}', ['p', 'x']), undefined)
})

test('deep nesting takes no stack', () => {
  const depth = 100_000
  const text = `{"deep":${'['.repeat(depth)}${']'.repeat(depth)},"id":1}`
  assert.equal(textAt(text, ['id']), '1')
})

test('members and elements come in their order with their places', () => {
  const text = ' { "a" : 1 , "b":[2, 3] }'
  const found = [...members(text, 1)].map(({ key, keyStart, start, end }) => [
    key,
    text[keyStart],
    text.slice(start, end),
  ])
  assert.deepEqual(found, [
    ['a', '"', '1'],
    ['b', '"', '[2, 3]'],
  ])
  assert.deepEqual(
    [...elements('[ 1 ,"x", {} ]', 0)].map(({ start, end }) => '[ 1 ,"x", {} ]'.slice(start, end)),
    ['1', '"x"', '{}'],
  )
  assert.deepEqual([...members('{ }', 0)], [])
  assert.deepEqual([...elements('[\n]', 0)], [])
})

test('a replacement leaves every other byte alone', () => {
  const text = '{ "z":1.0, "id" : 12345678901234567890 ,"a":{"id":1},"\\u00e9":"é" }'
  assert.equal(
    replaceAt(text, ['id'], 'new "id"'),
    '{ "z":1.0, "id" : "new \\"id\\"" ,"a":{"id":1},"\\u00e9":"é" }',
  )
  assert.equal(replaceAt(text, ['missing'], 1), text)
})

test('edits may come in any order', () => {
  const text = '{"a":1,"b":2,"c":3}'
  const edit = (key: string, value: string) => ({ ...(locate(text, [key]) ?? assert.fail()), with: value })
  assert.equal(
    splice(text, [edit('c', '"C"'), edit('a', '[1,1]'), edit('b', '')]),
    '{"a":[1,1],"b":,"c":"C"}',
  )
  assert.equal(splice(text, []), text)
})

test('a member is put first, whether or not there are others', () => {
  assert.equal(prependMember('{}', 'id', '1'), '{"id":1}')
  assert.equal(prependMember(' { } ', 'id', '1'), ' {"id":1 } ')
  assert.equal(prependMember('{"a":1}', 'i"d', '{"x":2}'), '{"i\\"d":{"x":2},"a":1}')
})

const scalars = [
  'null',
  'true',
  '0',
  '-1.5e-7',
  '98765432109876543210',
  '""',
  '"plain"',
  '"\\\\"',
  '"\\"]}"',
  '"\\u2028 ü 😀"',
]
const names = ['"id"', '"\\u0069d"', '"a"', '"a b"', '""', '"\\""', '"{[,:"', '"__proto__"']
const spaces = ['', '', '', ' ', '\n', '\r\n\t ']

/** A JSON text of random shape, white space, escapes and duplicate names. */
function document(random: () => number, depth: number): string {
  const padded = (text: string) => pick(random, spaces) + text + pick(random, spaces)
  const shape = random()
  if (depth === 0 || shape < 0.3) return padded(pick(random, scalars))
  const items = Array.from({ length: Math.floor(random() * 5) }, () => {
    const value = document(random, depth - 1)
    return shape < 0.6 ? value : `${padded(pick(random, names))}:${value}`
  }).join(',')
  return padded(shape < 0.6 ? `[${items || pick(random, spaces)}]` : `{${items || pick(random, spaces)}}`)
}

/** Every path into a parsed value, with its value. */
function* paths(value: unknown, path: JsonPath = []): Generator<[JsonPath, unknown]> {
  yield [path, value]
  if (typeof value !== 'object' || value === null) return
  const entries: [string | number, unknown][] = Array.isArray(value)
    ? [...value.entries()]
    : Object.entries(value)
  for (const [step, inner] of entries) yield* paths(inner, [...path, step])
}

// `parseExactly` equals `JSON.parse`, except when V8 confuses two keys, as V8 may in a process with many parsed keys.
test('lookups agree with JSON.parse on documents of any shape, and replace nothing else', () => {
  const random = seeded(20_260_728)
  let checked = 0
  for (let i = 0; i < 2_000; i++) {
    const text = document(random, 5)
    for (const [path, value] of paths(parseExactly(text))) {
      const found = textAt(text, path)
      assert.deepEqual(
        found === undefined ? undefined : parseExactly(found),
        value,
        `${JSON.stringify(path)} in ${text}`,
      )
      assert.equal(found, found?.trim())
      const replaced = replaceAt(text, path, 'new')
      assert.equal(textAt(replaced, path), '"new"')
      assert.equal(replaced.length - text.length, '"new"'.length - (found?.length ?? 0))
      checked++
    }
  }
  assert.ok(checked > 10_000, `${checked} values`)
})
