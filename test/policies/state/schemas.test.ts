import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Schemas, sharedSchemas } from '../../../src/policies/state/schemas.ts'
import { compileSchema } from '../../../src/policies/state/schemas/compile.ts'
import type { Mismatch } from '../../../src/policies/state/schemas/mismatch.ts'
import { testPolicyContext } from '../../support/policy-context.ts'
import { ManualClock } from '../../support/manual-clock.ts'

/** Returns the check of a schema after all the time that compiling needs. */
async function checkOf(schema: unknown, use: 'reply' | 'arguments' = 'reply') {
  const clock = new ManualClock()
  // Costs are steps here, not CPU time, which differs from machine to machine.
  const schemas = new Schemas(clock, (given, all) => compileSchema(given, all, () => 0))
  assert.equal(schemas.find(schema, use), undefined)
  await clock.advance(10)
  assert.equal(clock.pending, 0)
  return { check: schemas.find(schema, use), refused: schemas.snapshot().refused[0]?.reason }
}

const draft07 = 'http://json-schema.org/draft-07/schema#'

test('a schema without $schema is read as 2020-12', async () => {
  const { check } = await checkOf({
    prefixItems: [{ type: 'string' }],
    items: false,
    unevaluatedItems: false,
  })
  assert.equal(check?.(['a']), 'fits')
  assert.notEqual(check?.(['a', 'b']), 'fits')
  assert.notEqual(check?.([1]), 'fits')
  const named = await checkOf({ $schema: 'https://json-schema.org/draft/2020-12/schema', minimum: 3 })
  assert.notEqual(named.check?.(2), 'fits')
})

test('draft-07 is read as its own dialect', async () => {
  const { check } = await checkOf({
    $schema: draft07,
    definitions: { name: { type: 'string' } },
    items: [{ $ref: '#/definitions/name' }],
    additionalItems: false,
  })
  assert.equal(check?.(['a']), 'fits')
  assert.notEqual(check?.([1]), 'fits')
  assert.notEqual(check?.(['a', 'b']), 'fits')
})

test('other dialects are not guessed at', async () => {
  const { check, refused } = await checkOf({ $schema: 'http://json-schema.org/draft-04/schema#' })
  assert.equal(check, undefined)
  assert.equal(refused, 'the schema is of an unknown dialect')
})

test('formats are checked', async () => {
  const { check } = await checkOf({ type: 'string', format: 'date-time' })
  assert.equal(check?.('2026-01-01T00:00:00Z'), 'fits')
  assert.notEqual(check?.('yesterday'), 'fits')
})

test('a text that many programs write for a format fits it', async () => {
  const fitting = {
    'date-time': '2025-01-01T00:00:00.25',
    time: '10:00:00',
    duration: 'P1Y2M3DT4H5M6.5S',
    email: 'jürgen@example.org',
    uri: 'https://example.org/größe?f[]=1&q={x}|100%',
  }
  for (const [format, text] of Object.entries(fitting)) {
    const { check } = await checkOf({ type: 'string', format })
    assert.equal(check?.(text), 'fits', format)
    for (const other of ['', 'soon', ` ü ${text}`])
      assert.notEqual(check?.(other), 'fits', `${format}: ${other}`)
  }
})

test('a decimal number is a multiple of a decimal number', async () => {
  const { check } = await checkOf({ multipleOf: 0.01 })
  for (const price of [19.99, 0.07, 1_234_567.89]) assert.equal(check?.(price), 'fits', String(price))
  assert.notEqual(check?.(19.999), 'fits')
})

test('draft-07 ignores what stands beside a reference, later drafts do not', async () => {
  const schema = { definitions: { name: { type: 'string' } }, $ref: '#/definitions/name', minLength: 3 }
  const old = await checkOf({ $schema: draft07, ...schema })
  assert.equal(old.check?.('a'), 'fits')
  assert.notEqual(old.check?.(1), 'fits')
  const later = await checkOf(schema)
  assert.notEqual(later.check?.('a'), 'fits')
})

test('a check is given up for its CPU time, after any number of steps', () => {
  const others = Array.from({ length: 30 }, (_, nth) => ({ not: { required: [`k${nth}`, 'a'] } }))
  const value = Array.from({ length: 2_000 }, () => ({ a: 5 }))
  let looks = 0
  const checkAt = (msBetweenLooks: number) =>
    compileSchema({ items: { allOf: others } }, false, () => ++looks * msBetweenLooks)
  assert.equal(checkAt(0)(value), 'fits')
  assert.ok(looks > 3)
  const slow = checkAt(15)
  assert.equal(slow(value), 'too_costly')
  looks = 0
  assert.equal(slow([{ a: 5 }]), 'fits')
  assert.equal(looks, 0, 'a small check reads no clock')
})

test('a recursive schema is accepted', async () => {
  const { check } = await checkOf({
    type: 'object',
    properties: { children: { type: 'array', items: { $ref: '#' } } },
  })
  assert.equal(check?.({ children: [{ children: [] }] }), 'fits')
  assert.deepEqual(check?.({ children: [{ children: [7] }] }), [
    { path: '/children/0/children/0', expected: 'must be object', keyword: 'type', limit: undefined },
  ])
})

const draft7 = { $schema: 'http://json-schema.org/draft-07/schema#' }
const names = (count: number) => Array.from({ length: count }, (_, i) => `name${i}`)
const wide = (dependencies: object) => ({ ...draft7, dependencies })
const dense = { type: 'string', minLength: 1, maxLength: 9 }

test('schemas of everyday size are compiled', async () => {
  for (const schema of [
    wide({ a: names(100), b: ['c'] }),
    { dependentRequired: { a: ['b', 'c'] } },
    { properties: Object.fromEntries(names(300).map((name) => [name, dense])), required: names(300) },
    { ...draft7, enum: names(2_000) },
    { ...draft7, enum: names(100).map((name) => ({ name })) },
  ]) {
    const { check, refused } = await checkOf(schema)
    assert.notEqual(check, undefined, refused)
  }
  const { check } = await checkOf({ dependentRequired: { a: ['b', 'c'] } })
  assert.notEqual(check?.({ a: 1, b: 2 }), 'fits')
  assert.equal(check?.({ a: 1, b: 2, c: 3 }), 'fits')
})

test('a recursive schema judges no value that is too deep', async () => {
  const { check } = await checkOf({ properties: { a: { $ref: '#' } }, type: 'object' })
  let value = {}
  for (let depth = 0; depth < 30_000; depth++) value = { a: value }
  assert.equal(check?.(value), 'too_costly')
})

test('a schema that is invalid, or needs the network, is refused with a reason', async () => {
  const deep = Array.from({ length: 70 }).reduce<object>((items) => ({ items }), {})
  const times = (count: number, schema: object) => ({ allOf: Array<object>(count).fill(schema) })
  const many = { properties: Object.fromEntries(Array.from({ length: 3_000 }, (_, i) => [`p${i}`, {}])) }
  for (const [schema, reason] of [
    [{ type: 'thing' }, /invalid schema/],
    [{ $ref: 'http://127.0.0.1:1/schema.json' }, /can't resolve reference http/],
    [{ description: 'x'.repeat(300_000) }, /larger than 256 KiB/],
    [deep, /deeper than 64/],
    [many, /more than 1000 subschemas/],
    [wide({ p: names(1_000) }), /more than 2000 checks/],
    [wide(Object.fromEntries(names(900).map((name) => [name, ['a', 'b']]))), /more than 2000 checks/],
    [{ ...draft7, enum: names(5_000) }, /more than 2000 checks/],
    [times(50, { required: names(150) }), /more than 2000 checks/],
    [times(500, { type: ['string', 'null', 'number', 'object', 'array'] }), /more than 2000 checks/],
    [times(100, { enum: names(199) }), /more than 2000 checks/],
    [{ anyOf: Array<boolean>(3_000).fill(false) }, /more than 2000 checks/],
    [{ properties: Object.fromEntries(names(3_000).map((name) => [name, false])) }, /more than 2000 checks/],
    [
      { patternProperties: Object.fromEntries(names(600).map((name) => [name, true])) },
      /more than 2000 checks/,
    ],
    [
      { ...draft7, enum: names(1_000).map((name) => ({ name, of: 'x'.repeat(200) })) },
      /more than 2000 checks/,
    ],
    [{ properties: Object.fromEntries(names(900).map((name) => [name, dense])) }, /more than 2000 checks/],
    [times(20, { pattern: '\\p{L}'.repeat(160) }), /more than 2000 checks/],
    [{ patternProperties: { ['\\p{L}'.repeat(2_000)]: true } }, /more than 2000 checks/],
  ] as const) {
    const { check, refused } = await checkOf(schema)
    assert.equal(check, undefined)
    assert.match(refused ?? '', reason)
  }
})

test('a union of unions is given up for a value that none of them fits, of replies too', async () => {
  const depth = 22
  const union = (index: number) => [`d${index}`, { anyOf: Array(2).fill({ $ref: `#/$defs/d${index + 1}` }) }]
  const unions = Object.fromEntries(Array.from({ length: depth }, (_, index) => union(index)))
  const $defs = { ...unions, [`d${depth}`]: { type: 'integer' } }
  const { check } = await checkOf({ $defs, properties: { n: { $ref: '#/$defs/d0' } } })
  assert.equal(check?.({ n: 'no' }), 'too_costly')
  // The text's length is counted for each member of a union.
  const { check: counts } = await checkOf({ anyOf: Array(300).fill({ minLength: 1e9 }) })
  assert.equal(counts?.('x'.repeat(40_000)), 'too_costly')
})

test('an asynchronous schema is checked like any other', async () => {
  const { check } = await checkOf({ $async: true, type: 'string' })
  assert.equal(check?.('x'), 'fits')
  assert.notEqual(check?.(1), 'fits')
})

test('a pattern that could take forever is skipped, and the rest is still checked', async () => {
  for (const pattern of ['^(a+)+$', '^(a|a)*$', '^(a?){40}a{40}$', '^(.*)(.*)(.*)(.*)(.*)(.*)x$', '(x)\\1']) {
    const { check } = await checkOf({ properties: { id: { type: 'number' }, name: { pattern } } })
    assert.equal(check?.({ id: 1, name: `${'a'.repeat(40)}!` }), 'too_costly', pattern)
    assert.equal(check?.({ id: 1 }), 'fits')
  }
})

test('a mismatch beside a skipped pattern is found, unless the pattern may be the cause', async () => {
  const name = { pattern: '^(a+)+$' }
  const value = { id: 'x', name: 'a' }
  const beside = { id: { type: 'number' }, name }
  const { check } = await checkOf({ properties: beside })
  assert.notEqual(check?.(value), 'too_costly')
  for (const inverting of [
    { not: { properties: { name } } },
    { oneOf: [{ properties: { name } }, true] },
    { if: { properties: { name } }, then: false },
    { patternProperties: { '^(n+)+ame$': false } },
  ]) {
    const { check } = await checkOf({ properties: beside, ...inverting }, 'arguments')
    assert.equal(check?.(value), 'too_costly', JSON.stringify(inverting))
  }
})

test('no bound, group, name or class hides the cost of a pattern, anywhere in a schema', async () => {
  for (const pattern of [
    '^(?:a{1,50}){1,50}b$',
    '(a*){2,}',
    '^(?<x>a+)\\k<x>$',
    'a*a*a*a*a*a*b',
    '(?=(a+)+$)b',
    '^(?:\\p{L}+)+b$',
    '^(?:[)\\]a]+)+b$',
    '^(?:.a+)*$',
    '^(?:a[a-c]+)*$',
    '^(?:a+\\w)+b$',
    '^(?:aa*a*!?)*b$',
    '^(?:\\141a+)*b$',
    '^(?:(?:-?a+)+)*b$',
    `^${'(|)'.repeat(40)}(?!)`,
    `^${'(?:|)'.repeat(40)}(?!)`,
    `^${'(?:)?'.repeat(40)}(?!)`,
    `^${'(?:(?=)|)'.repeat(40)}(?!)`,
  ])
    for (const schema of [
      { pattern },
      { patternProperties: { [pattern]: true } },
      { propertyNames: { pattern } },
    ]) {
      const { check } = await checkOf(schema)
      const text = `${'a'.repeat(40)}!`
      assert.equal(check?.('pattern' in schema ? text : { [text]: 1 }), 'too_costly', JSON.stringify(schema))
    }
})

test('the patterns of everyday schemas are tried', async () => {
  for (const [pattern, good, bad] of [
    ['^[a-z0-9_]+$', 'some_name', 'Some Name'],
    ['^\\d{4}-\\d{2}-\\d{2}$', '2026-01-01', 'today'],
    ['^https?://.+', 'http://example.com', 'ftp://example.com'],
    ['^(up|down)$', 'up', 'left'],
    ['^v?\\d+\\.\\d+\\.\\d+$', 'v1.2.3', '1.2'],
    ['^\\@\\w+$', '@ada', 'ada'],
    ['^[a-z0-9]+(?:-[a-z0-9]+)*$', 'a-slug-of-5', 'A Slug'],
    ['^(?:[^/]+/)*[^/]*$', 'a/path/to', 'a//path'],
    ['^[a-z0-9]{1,63}(\\.[a-z0-9]{1,63})+$', 'www.example.com', 'example..com'],
    ['^\\d+(?:,\\d+)*$', '1,22,333', '1,,2'],
  ] as const) {
    const { check } = await checkOf({ pattern })
    assert.equal(check?.(good), 'fits', pattern)
    assert.notEqual(check?.(bad), 'fits', pattern)
    assert.notEqual(check?.(bad), 'too_costly', pattern)
  }
})

test('the cost of a pattern grows with the length of text that the pattern may scan', async () => {
  const long = 'a'.repeat(120_000)
  for (const pattern of ['[ab]{40000}c', '(?:[ab]{200}){200}c', '(?:x{0}[ab]{500}|[ab]{40000})c']) {
    const { check } = await checkOf({ items: { type: 'string', pattern } }, 'arguments')
    assert.equal(check?.([long]), 'too_costly', pattern)
    assert.deepEqual(
      (check?.(['', long]) as Mismatch[]).map(({ path }) => path),
      ['/0'],
      pattern,
    )
  }
  // A pattern with catastrophic backtracking has no finite cost, so even a short text is too expensive.
  const { check: hopeless } = await checkOf({ items: { pattern: '^(a+)+$' } }, 'arguments')
  assert.equal(hopeless?.(['', `${'a'.repeat(40)}!`]), 'too_costly')
  const fine = { '^.{1,255}$': 'a'.repeat(200), '^[0-9]{4}-[0-9]{2}$': '2026-11', '^(?:jan|feb|mar)$': 'mar' }
  for (const [pattern, text] of Object.entries(fine)) {
    const { check } = await checkOf({ items: { type: 'string', pattern } })
    assert.equal(check?.(Array<string>(5_000).fill(text)), 'fits', pattern)
  }
})

test('the cost of a check depends on the value and on the schema', async () => {
  const all = (count: number, schema: object) => ({ allOf: Array<object>(count).fill(schema) })
  const doubling = (levels: number, leaf: object) => ({
    $defs: Object.fromEntries([
      ['d0', leaf],
      ...Array.from({ length: levels }, (_, at) => {
        const $ref = `#/$defs/d${at}`
        return [`d${at + 1}`, { allOf: [{ $ref }, { $ref }] }] as const
      }),
    ]),
    $ref: `#/$defs/d${levels}`,
  })
  const members = Object.fromEntries(Array.from({ length: 45_000 }, (_, at) => [`m${at}`, at]))
  const numbers = Array.from({ length: 95_000 }, (_, at) => at)
  const text = 'x'.repeat(1_000_000)
  const names = Array.from({ length: 900 }, (_, at) => `n${at}`)
  for (const [schema, value] of [
    [all(480, { additionalProperties: { type: 'integer' } }), members],
    [all(200, { propertyNames: { minLength: 1 } }), members],
    [all(480, { items: { type: 'integer' } }), numbers],
    [all(400, { minLength: 1, maxLength: 2_000_000 }), text],
    [doubling(10, { additionalProperties: { type: 'integer' } }), members],
    [doubling(12, { minLength: 1 }), text],
    [{ items: { allOf: Array<object>(300).fill({ minimum: 0 }) } }, numbers],
    [{ items: { properties: Object.fromEntries(names.map((name) => [name, {}])) } }, numbers.map(() => ({}))],
    [{ additionalProperties: false }, { ['/'.repeat(4_000_000)]: 1 }],
    [
      { ...all(20, { additionalProperties: { $ref: '#/$defs/any' } }), $defs: { any: {} } },
      { ['/'.repeat(1_000_000)]: 1 },
    ],
    [doubling(11, { const: numbers.slice(0, 10_000) }), numbers.slice(0, 10_000)],
    [doubling(11, { enum: [numbers.slice(0, 10_000)] }), numbers.slice(0, 10_000)],
    [{ uniqueItems: true }, numbers.slice(0, 960).map((at) => 'x'.repeat(16_500) + at)],
    [all(900, { uniqueItems: true }), [{ a: 'x'.repeat(3_000_000) }]],
  ] as const) {
    const { check } = await checkOf(schema)
    assert.equal(check?.(value), 'too_costly', JSON.stringify(schema).slice(0, 100))
  }
  // Checks of arguments continue after the first mismatch.
  for (const schema of [
    { items: { required: names } },
    { items: { allOf: Array<object>(300).fill({ type: 'string' }) } },
    all(480, { items: { type: 'string' } }),
  ]) {
    const { check } = await checkOf(schema, 'arguments')
    assert.equal(check?.(numbers.map(() => ({}))), 'too_costly', JSON.stringify(schema).slice(0, 100))
  }
  for (const [schema, value] of [
    [{ additionalProperties: { type: 'integer' } }, members],
    [{ items: { type: 'integer', minimum: 0 } }, numbers],
    [{ minLength: 1, maxLength: 2_000_000 }, text],
    [{ items: { enum: names.slice(0, 50) } }, numbers.slice(0, 40_000).map(() => 'n49')],
    [{ items: { const: { a: [1, 2, 3] } } }, numbers.slice(0, 50_000).map(() => ({ a: [1, 2, 3] }))],
    [{ uniqueItems: true }, numbers.slice(0, 500).map((at) => `${at} ${'x'.repeat(2_000)}`)],
  ] as const) {
    const { check } = await checkOf(schema)
    assert.equal(check?.(value), 'fits', JSON.stringify(schema))
  }
})

test('references that multiply, and endless ones, are given up', async () => {
  const $defs = Object.fromEntries(
    Array.from({ length: 40 }, (_, i) => [
      `d${i}`,
      { allOf: [{ $ref: `#/$defs/d${i + 1}` }, { $ref: `#/$defs/d${i + 1}` }] },
    ]),
  )
  const bomb = await checkOf({ $ref: '#/$defs/d0', $defs: { ...$defs, d40: {} } })
  assert.equal(bomb.check?.({}), 'too_costly')
  const endless = await checkOf({ allOf: [{ $ref: '#' }] })
  assert.equal(endless.check?.({}), 'too_costly')
})

const endless = { $defs: { endless: { $ref: '#/$defs/endless' } } }

test('a schema with repeatedly expensive checks is tried rarely, until a check completes', async () => {
  const { check } = await checkOf({ properties: { name: { $ref: '#/$defs/endless' } }, ...endless })
  const costly = { name: 'a' }
  for (let i = 0; i < 20; i++) assert.equal(check?.(costly), 'too_costly')
  for (let i = 0; i < 99; i++) assert.equal(check?.({}), 'too_costly')
  assert.equal(check?.({}), 'fits')
  for (let i = 0; i < 19; i++) assert.equal(check?.(costly), 'too_costly')
  assert.equal(check?.({}), 'fits')
})

test('costly values among others leave a schema in use', async () => {
  const { check } = await checkOf({ properties: { name: { $ref: '#/$defs/endless' } }, ...endless })
  for (let i = 0; i < 100; i++) {
    assert.equal(check?.({ name: 'a' }), 'too_costly')
    assert.equal(check?.({}), 'fits')
  }
})

test('items are compared in one pass to be unique', async () => {
  const { check } = await checkOf({ uniqueItems: true })
  assert.equal(check?.([1, '1', { a: 1, b: 2 }, [1], null, true, '"1']), 'fits')
  assert.notEqual(check?.([{ a: 1, b: 2 }, 3, { b: 2, a: 1 }]), 'fits')
  assert.equal(check?.(Array.from({ length: 100_000 }, (_, id) => ({ id }))), 'fits')
})

test('a check names the first mismatch of a reply, and up to three of arguments', async () => {
  const schema = { required: ['a', 'b', 'c', 'd'] }
  assert.equal((await checkOf(schema)).check?.({})?.length, 1)
  assert.equal((await checkOf(schema, 'arguments')).check?.({})?.length, 3)
})

test('names of strangers are bounded and stay on one line', async () => {
  const { check } = await checkOf({ additionalProperties: false })
  const [mismatch] = check?.({ [`a/b~c\n${'x'.repeat(500)}`]: 1 }) as unknown as [{ path: string }]
  assert.match(mismatch.path, /^\/a~1b~0c x+…$/)
  assert.ok(mismatch.path.length <= 121)
})

test('equal schemas are compiled once, and two compilations never follow at once', async () => {
  const clock = new ManualClock()
  const schemas = new Schemas(clock)
  for (let i = 0; i < 3; i++) schemas.find({ type: 'string' }, 'reply')
  const other = { type: 'number' }
  schemas.find(other, 'reply')
  await clock.advance(0)
  assert.deepEqual(schemas.snapshot(), { compiled: 1, waiting: 3, refused: [] })
  assert.equal(schemas.find(other, 'reply'), undefined)
  await clock.advance(15)
  assert.deepEqual(schemas.snapshot(), { compiled: 2, waiting: 0, refused: [] })
  assert.equal(clock.pending, 0)
})

test('beyond 2000 schemas the least recently used are dropped, and compiled again on demand', async () => {
  const clock = new ManualClock()
  const schemas = new Schemas(clock)
  const all = Array.from({ length: 2_001 }, (_, minimum) => ({ minimum }))
  for (const schema of all.slice(0, 2_000)) schemas.find(schema, 'reply')
  for (let i = 0; i < 2_000; i++) await clock.advance(5)
  assert.notEqual(schemas.find(all[0], 'reply'), undefined)
  schemas.find(all[2_000], 'reply')
  await clock.advance(5)
  assert.equal(schemas.snapshot().compiled, 2_000)
  assert.notEqual(schemas.find(all[0], 'reply'), undefined)
  assert.equal(schemas.find(all[1], 'reply'), undefined)
  await clock.advance(5)
  assert.notEqual(schemas.find(all[1], 'reply'), undefined)
})

test('all policies share one cache', () => {
  const context = testPolicyContext()
  assert.equal(sharedSchemas(context), sharedSchemas(context))
})
