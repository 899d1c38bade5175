import assert from 'node:assert/strict'
import { test } from 'node:test'
import { apply, choose, pathFor } from '../../../src/chaos/operators/apply.ts'
import {
  type DriftName,
  driftNames,
  driftOperators,
  partialNames,
} from '../../../src/chaos/operators/index.ts'
import { createKeyedRandom } from '../../../src/mesh/keyed-random.ts'

const orders = {
  total: 2,
  updated: '2026-02-03T04:05:06Z',
  items: [
    { id: 7, state: 'open', price: 9.99, note: 'x' },
    { id: 8, state: 'shut', price: 1.5 },
  ],
}

const schema = {
  type: 'object',
  required: ['items'],
  properties: { items: { type: 'array', items: { $ref: '#/$defs/order' } }, total: { type: 'integer' } },
  $defs: {
    order: {
      type: 'object',
      required: ['id', 'state'],
      properties: { id: { type: 'integer' }, state: { enum: ['open', 'shut'] }, note: { type: 'string' } },
    },
  },
}

/** Returns the places that an operator draws over many calls. */
function drawn(op: DriftName, value: unknown, withSchema?: unknown): string[] {
  const random = createKeyedRandom(1)
  const paths = new Set<string>()
  for (let call = 0; call < 300; call++) {
    const path = pathFor(
      driftOperators[op].schema.parse({ op }),
      value,
      (purpose) => random(`${call}`, purpose),
      withSchema,
    )
    if (path !== undefined) paths.add(path)
  }
  return [...paths].sort()
}

test('drift drops required members as required, and others as optional', () => {
  assert.deepEqual(drawn('drop_required', orders, schema), ['/items', '/items/*/id', '/items/*/state'])
  assert.deepEqual(drawn('drop_optional', orders, schema), [
    '/items/*/note',
    '/items/*/price',
    '/total',
    '/updated',
  ])
})

test('where the schema lists words, an enum is one of them', () => {
  assert.deepEqual(drawn('enum', orders, schema), ['/items/*/state'])
})

test('without a schema, the value says what there is', () => {
  assert.deepEqual(drawn('enum', orders), ['/items/*/note', '/items/*/state'])
  assert.deepEqual(drawn('date', orders), ['/updated'])
  assert.deepEqual(drawn('precision', orders), ['/items/*/price'])
})

test('over many calls every operator that fits is picked, and each pick can be applied', () => {
  const random = createKeyedRandom(42)
  const seen = new Set<string>()
  for (let call = 0; call < 1_000; call++) {
    const draw = (purpose: string) => random(`${call}`, purpose)
    const config = choose(driftNames, () => orders, draw, { schema })
    assert.ok(config?.path !== undefined)
    const applied = apply(config, orders, draw)
    assert.notEqual(applied, 'not_applicable', JSON.stringify(config))
    if (applied !== 'not_applicable') assert.notDeepEqual(applied.value, orders, JSON.stringify(config))
    seen.add(config.op)
  }
  // `unnest` needs a nested object with room above; this value has none.
  assert.deepEqual([...seen].sort(), driftNames.filter((name) => name !== 'unnest').sort())
})

test('the same draws choose the same operator and the same place', () => {
  const draw = (purpose: string) => createKeyedRandom(9)('call', purpose)
  assert.deepEqual(
    choose(driftNames, () => orders, draw),
    choose(driftNames, () => structuredClone(orders), draw),
  )
})

test('on request, only changes that no schema can show are chosen', () => {
  const random = createKeyedRandom(3)
  for (let call = 0; call < 200; call++) {
    const config = choose(
      driftNames,
      () => orders,
      (purpose) => random(`${call}`, purpose),
      {
        detectable: 'semantic',
      },
    )
    assert.equal(driftOperators[config?.op as DriftName].detectable, 'semantic')
  }
})

test('without a fitting operator, none is chosen', () => {
  assert.equal(
    choose(
      partialNames,
      () => ({ a: 1 }),
      () => 0,
    ),
    undefined,
  )
  assert.equal(
    apply(driftOperators.date.schema.parse({ op: 'date' }), orders.items, () => 0),
    'not_applicable',
  )
})

test('a schema that refers to itself, or to nowhere, ends', () => {
  const loop = { $ref: '#/$defs/a', $defs: { a: { $ref: '#/$defs/a' } } }
  const nowhere = { $ref: '#/nowhere' }
  const foreign = { $ref: 'https://example.com/schema' }
  for (const odd of [loop, nowhere, foreign, true, null])
    assert.ok(
      choose(
        driftNames,
        () => orders,
        () => 0,
        { schema: odd },
      ),
    )
})

test('deep and wide values are looked at only so far', () => {
  let deep: unknown = 1
  for (let level = 0; level < 10_000; level++) deep = { deep }
  const wide = Object.fromEntries(Array.from({ length: 100_000 }, (_, i) => [`k${i}`, i]))
  for (const value of [deep, wide])
    assert.ok(
      choose(
        driftNames,
        () => value,
        () => 0.99,
      ),
    )
})
