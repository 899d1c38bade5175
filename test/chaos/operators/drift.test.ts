import assert from 'node:assert/strict'
import { test } from 'node:test'
import { apply } from '../../../src/chaos/operators/apply.ts'
import { driftSchema } from '../../../src/chaos/operators/index.ts'

/** Returns the changed value, or `not_applicable`. The original must stay unchanged. */
function changed(config: object, value: unknown): unknown {
  const before = structuredClone(value)
  const applied = apply(driftSchema.parse(config), value, () => 0)
  assert.deepEqual(value, before)
  return applied === 'not_applicable' ? applied : applied.value
}

const cases: [string, object, unknown, unknown][] = [
  [
    'rename gives a member its new name, in its old place',
    { op: 'rename', path: '/message', to: 'msg' },
    { id: 1, message: 'a', n: 2 },
    { id: 1, msg: 'a', n: 2 },
  ],
  [
    'rename without a name turns camelCase into snake_case',
    { op: 'rename', path: '/userName' },
    { userName: 1 },
    { user_name: 1 },
  ],
  [
    'rename without a name turns snake_case into camelCase',
    { op: 'rename', path: '/user_name' },
    { user_name: 1 },
    { userName: 1 },
  ],
  [
    'rename does not overwrite another member',
    { op: 'rename', path: '/a', to: 'b' },
    { a: 1, b: 2 },
    'not_applicable',
  ],
  ['type writes a number as a string', { op: 'type', path: '/n' }, { n: 4.5 }, { n: '4.5' }],
  ['type reads a number from a string', { op: 'type', path: '/n' }, { n: '-42' }, { n: -42 }],
  ['type writes true as "true"', { op: 'type', path: '/b' }, { b: true }, { b: 'true' }],
  ['type finds nothing in a word', { op: 'type', path: '/w' }, { w: 'word' }, 'not_applicable'],
  ['null puts null', { op: 'null', path: '/a' }, { a: { b: 1 } }, { a: null }],
  ['drop_required leaves a member out', { op: 'drop_required', path: '/a' }, { a: 1, b: 2 }, { b: 2 }],
  ['drop_optional leaves a member out', { op: 'drop_optional', path: '/b' }, { a: 1, b: 2 }, { a: 1 }],
  ['nest puts a value one deeper', { op: 'nest', path: '/a', under: 'value' }, { a: 1 }, { a: { value: 1 } }],
  ['nest takes the whole value too', { op: 'nest', path: '' }, { a: 1 }, { data: { a: 1 } }],
  [
    'unnest moves members up',
    { op: 'unnest', path: '/a' },
    { x: 0, a: { b: 1, c: 2 }, y: 3 },
    { x: 0, b: 1, c: 2, y: 3 },
  ],
  ['unnest overwrites nothing', { op: 'unnest', path: '/a' }, { b: 0, a: { b: 1 } }, 'not_applicable'],
  [
    'unnest puts the only member in place of an element',
    { op: 'unnest', path: '/*' },
    [{ v: 1 }, { v: 2 }],
    [1, 2],
  ],
  ['enum writes a word in other letters', { op: 'enum', path: '/s' }, { s: 'open' }, { s: 'OPEN' }],
  [
    'enum puts the word that it is given',
    { op: 'enum', path: '/s', to: 'gone' },
    { s: 'open' },
    { s: 'gone' },
  ],
  ['unit scales a number', { op: 'unit', path: '/ms' }, { ms: 2 }, { ms: 2000 }],
  ['unit has nothing to scale in zero', { op: 'unit', path: '/ms' }, { ms: 0 }, 'not_applicable'],
  [
    'add_field adds a member',
    { op: 'add_field', path: '/a', name: 'x', value: 1 },
    { a: {} },
    { a: { x: 1 } },
  ],
  [
    'stale_value sets a date back, as exact as it was',
    { op: 'stale_value', path: '/at', age: '1h' },
    { at: '2026-03-01T00:30:00+02:00' },
    { at: '2026-02-28T23:30:00+02:00' },
  ],
  [
    'stale_value sets a day back',
    { op: 'stale_value', path: '/at' },
    { at: '2026-03-01' },
    { at: '2026-02-28' },
  ],
  ['stale_value takes one from a small count', { op: 'stale_value', path: '/n' }, { n: 3 }, { n: 2 }],
  [
    'stale_value takes a share from a measure',
    { op: 'stale_value', path: '/n', change: 0.5 },
    { n: 2.5 },
    { n: 1.25 },
  ],
  [
    'stale_value puts the old value that it is given',
    { op: 'stale_value', path: '/s', to: 'old' },
    { s: 'new' },
    { s: 'old' },
  ],
  [
    'date becomes seconds since 1970',
    { op: 'date', path: '/at' },
    { at: '2026-01-01T00:00:00Z' },
    { at: 1767225600 },
  ],
  [
    'date becomes DD/MM/YYYY',
    { op: 'date', path: '/at', form: 'dmy' },
    { at: '2026-02-01' },
    { at: '01/02/2026' },
  ],
  ['date leaves what is none', { op: 'date', path: '/at' }, { at: 'tomorrow' }, 'not_applicable'],
  [
    'array_to_object names elements by index',
    { op: 'array_to_object', path: '/l' },
    { l: ['a', 'b'] },
    { l: { 0: 'a', 1: 'b' } },
  ],
  ['scalar_to_array wraps a scalar', { op: 'scalar_to_array', path: '/s' }, { s: 'a' }, { s: ['a'] }],
  ['precision rounds', { op: 'precision', path: '/p', digits: 1 }, { p: 1.25 }, { p: 1.3 }],
  [
    'precision finds nothing to round in a whole number',
    { op: 'precision', path: '/p' },
    { p: 2 },
    'not_applicable',
  ],
]

for (const [name, config, value, expected] of cases) {
  test(name, () => assert.deepEqual(changed(config, value), expected))
}

test('a star is every array element, at any depth, with or without the first slash', () => {
  const value = { items: [{ tags: [{ n: 1 }, { n: 2 }] }, { tags: [] }, { other: 1 }, { tags: [{ n: 3 }] }] }
  const expected = {
    items: [{ tags: [{ n: '1' }, { n: '2' }] }, { tags: [] }, { other: 1 }, { tags: [{ n: '3' }] }],
  }
  assert.deepEqual(changed({ op: 'type', path: '/items/*/tags/*/n' }, value), expected)
  assert.deepEqual(changed({ op: 'type', path: '*/n' }, [{ n: 1 }, { n: true }]), [{ n: '1' }, { n: 'true' }])
})

test('a path names a member by its escaped name, and an element by its index', () => {
  assert.deepEqual(changed({ op: 'null', path: '/a~1b/1/c~0' }, { 'a/b': [0, { 'c~': 1 }] }), {
    'a/b': [0, { 'c~': null }],
  })
  assert.deepEqual(changed({ op: 'null', path: '/*' }, { '*': 1 }), { '*': null })
})

test('a path that leads nowhere is not applicable, not even to inherited members', () => {
  for (const path of ['/b', '/a/b', '/l/9', '/l/x', '/toString', '/__proto__', '/l/*/x'])
    assert.equal(changed({ op: 'null', path }, { a: 1, l: [1] }), 'not_applicable', path)
})

test('a member named __proto__ stays a plain member', () => {
  const value: unknown = JSON.parse('{"__proto__":{"a":1},"n":1}')
  const applied = apply(driftSchema.parse({ op: 'type', path: '/n' }), value, () => 0)
  assert.equal(JSON.stringify(applied), '{"value":{"__proto__":{"a":1},"n":"1"},"path":"/n"}')
})

test('settings that make no sense are refused', () => {
  for (const config of [
    { op: 'unknown' },
    { op: 'rename', path: 'message' },
    { op: 'rename', path: '/a~2' },
    { op: 'rename', too: 'x' },
    { op: 'unit', factor: 1 },
  ])
    assert.equal(driftSchema.safeParse(config).success, false, JSON.stringify(config))
})
