import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type JsonPath, locate, locateAll } from '../../src/protocol/json-span.ts'
import { pick, seeded } from '../support/random.ts'

test('many values are found in one walk, in the order in which they were asked for', () => {
  const text = ' {"a":[10,{"b":"x"}], "c" : {"d":null} }'
  const paths: JsonPath[] = [['c', 'd'], ['a', 1, 'b'], ['a', 0], ['a', 1], [], ['c', 'd']]
  const texts = locateAll(text, paths).map((span) => span && text.slice(span.start, span.end))
  assert.deepEqual(texts, ['null', '"x"', '10', '{"b":"x"}', text.trim(), 'null'])
})

test('a missing value is undefined, and no paths need no walk', () => {
  assert.deepEqual(
    locateAll('{"a":[1]}', [['b'], ['a', 1], ['a', 'x'], ['a', 0, 'x'], [0]]),
    new Array(5).fill(undefined),
  )
  assert.deepEqual(locateAll('{}', []), [])
})

/** A JSON text with duplicate names, nesting and white space. */
function document(random: () => number, depth: number): string {
  const kind = depth === 0 ? 0 : random()
  if (kind < 0.2) return pick(random, ['1.0', '"}"', 'null', ' "a" ', '[]', '{ }'])
  const items = Array.from({ length: Math.floor(random() * 4) }, () => document(random, depth - 1))
  if (kind < 0.5) return `[${items.join(' ,')}]`
  return `{${items.map((item) => `${pick(random, ['"a"', '"b"', '"\\u0061"'])}:${item}`).join()}}`
}

test('a single walk finds the same values as a walk for each path', () => {
  const random = seeded(20_260_728)
  let found = 0
  for (let i = 0; i < 3_000; i++) {
    const text = document(random, 4)
    const paths = Array.from({ length: 10 }, () =>
      Array.from({ length: Math.floor(random() * 4) }, () => pick(random, ['a', 'b', 0, 1, 2])),
    )
    const expected = paths.map((path) => locate(text, path))
    assert.deepEqual(locateAll(text, paths), expected, text)
    found += expected.filter((span) => span !== undefined).length
  }
  assert.ok(found > 5_000, `${found} found`)
})
