import assert from 'node:assert/strict'
import { test } from 'node:test'
import { pathOf, referencesIn, resolved, Unresolved, valueAt } from '../../src/load/references.ts'

const scope = {
  n: 3,
  task: 'w-1-3',
  values: { item: 'keel', size: 4, list: [1, 2] },
  steps: { found: { structuredContent: { ids: ['a', 'b'], 'an id': null, empty: '' } } },
}

test('a text with only a reference becomes the referenced value, of any type', () => {
  assert.equal(resolved('${n}', scope), 3)
  assert.equal(resolved('${task}', scope), 'w-1-3')
  assert.equal(resolved('${values.size}', scope), 4)
  assert.deepEqual(resolved('${values.list}', scope), [1, 2])
  assert.equal(resolved('${steps.found.structuredContent.ids[1]}', scope), 'b')
  assert.equal(resolved('${steps.found.structuredContent["an id"]}', scope), null)
})

test('within a longer text references are written out, and $${ is a literal one', () => {
  assert.equal(resolved('${values.item} ${n}, ${values.list}', scope), 'keel 3, [1,2]')
  assert.equal(resolved('$${n} costs $5', scope), '${n} costs $5')
  assert.equal(resolved('', scope), '')
})

test('references are found at any depth, and everything else stays', () => {
  const value = { a: [{ b: '${n}' }, true, 7, null], c: 'plain' }
  assert.deepEqual(resolved(value, scope), { a: [{ b: 3 }, true, 7, null], c: 'plain' })
  assert.deepEqual(
    [...referencesIn(value)].map(({ path, reference }) => [path, reference]),
    [[['a', 0, 'b'], ['n']]],
  )
})

test('a reference to nothing is reported without any value, and prototypes hold nothing', () => {
  for (const text of ['${steps.other.x}', '${steps.found.structuredContent.ids[2]}', '${values.toString}'])
    assert.throws(() => resolved(text, scope), Unresolved)
  assert.throws(() => resolved('x ${values.none}', scope), { message: '"${values.none}" refers to nothing' })
  assert.equal(valueAt({ a: { b: 0 } }, ['a', 'b']), 0)
})

test('paths are names with dots, and positions and quoted names in brackets', () => {
  assert.deepEqual(pathOf('a.b-c[0]["x y"].d'), ['a', 'b-c', 0, 'x y', 'd'])
  for (const text of ['', '.a', 'a.', 'a..b', 'a[', 'a[-1]', 'a b', 'a[0]b'])
    assert.equal(pathOf(text), undefined, text)
})

test('text that is no reference is reported', () => {
  for (const text of ['${', '${}', '${n.x}', '${values}', '${HOME}', '${steps}'])
    assert.ok(
      [...referencesIn(text)].every(({ problem }) => problem !== undefined),
      text,
    )
})
