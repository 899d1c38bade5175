import assert from 'node:assert/strict'
import { test } from 'node:test'
import { apply } from '../../../src/chaos/operators/apply.ts'
import { partialSchema } from '../../../src/chaos/operators/index.ts'

/** Returns the changed value, or `not_applicable`. The original must stay unchanged. */
function changed(config: object, value: unknown): unknown {
  const before = structuredClone(value)
  const applied = apply(partialSchema.parse(config), value, () => 0)
  assert.deepEqual(value, before)
  return applied === 'not_applicable' ? applied : applied.value
}

const cases: [string, object, unknown, unknown][] = [
  [
    'truncate_list keeps the first elements',
    { op: 'truncate_list', path: '/l' },
    { l: [1, 2, 3] },
    { l: [1, 2] },
  ],
  [
    'truncate_list always loses something',
    { op: 'truncate_list', path: '/l', keep: 0.9 },
    { l: [1] },
    { l: [] },
  ],
  [
    'truncate_list finds nothing in an empty list',
    { op: 'truncate_list', path: '/l' },
    { l: [] },
    'not_applicable',
  ],
  [
    'truncate_text cuts no character in two',
    { op: 'truncate_text', path: '/t', bytes: 3 },
    { t: 'aäöü' },
    { t: 'aä' },
  ],
  [
    'truncate_text keeps the tail',
    { op: 'truncate_text', path: '/t', bytes: 3, keep: 'tail' },
    { t: 'aäöü' },
    { t: 'ü' },
  ],
  [
    'truncate_text leaves a short text',
    { op: 'truncate_text', path: '/t', bytes: 10 },
    { t: 'short' },
    'not_applicable',
  ],
  ['drop_blocks drops the last ones', { op: 'drop_blocks', n: 2 }, ['a', 'b', 'c'], ['a']],
  ['cut_json cuts the text', { op: 'cut_json', at: 0.5 }, '{"a":[1]}', '{"a"'],
  ['cut_json leaves plain text', { op: 'cut_json' }, 'all is well', 'not_applicable'],
  [
    'drop_next_cursor forgets the next page',
    { op: 'drop_next_cursor' },
    { items: [], page: { next_cursor: 'x' } },
    { items: [], page: {} },
  ],
  [
    'drop_next_cursor finds nothing on the last page',
    { op: 'drop_next_cursor' },
    { items: [], nextCursor: null },
    'not_applicable',
  ],
  [
    'lie_total says more than there is',
    { op: 'lie_total' },
    { totalCount: 3, n: 1 },
    { totalCount: 6, n: 1 },
  ],
  ['lie_total says at least one less', { op: 'lie_total', factor: 0.9 }, { total: 1 }, { total: 0 }],
]

for (const [name, config, value, expected] of cases) {
  test(name, () => assert.deepEqual(changed(config, value), expected))
}

test('settings without an effect, or with unknown names, are refused', () => {
  for (const config of [
    { op: 'truncate_list', keep: 1 },
    { op: 'drop_blocks', n: 0 },
    { op: 'cut_json', at: 1 },
    { op: 'cut_json', path: '/a' },
    { op: 'lie_total', factor: 1 },
  ])
    assert.equal(partialSchema.safeParse(config).success, false, JSON.stringify(config))
})
