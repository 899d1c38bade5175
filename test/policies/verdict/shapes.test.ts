import assert from 'node:assert/strict'
import { test } from 'node:test'
import { isIncorrect } from '../../../src/mesh/classify.ts'
import { Shape, type ToolMemories } from '../../../src/policies/verdict/memory.ts'
import { jsonResult, setUp, structured, textResult } from './judged.ts'

const usual = { items: [{ id: 1, tag: 'a' }, { id: 2 }], page: { size: 2 } }

async function learned() {
  const parts = setUp()
  await parts.repeat(20, jsonResult(usual))
  return parts
}

test('the same shape with other values, other optional members and new ones is no drift', async () => {
  const { verdictOn } = await learned()
  assert.equal(
    await verdictOn(jsonResult({ items: [{ id: 9, more: true }], page: { size: 0 } })),
    'unchecked',
  )
  assert.equal(await verdictOn(jsonResult({ items: [], page: { size: 0 }, extra: null })), 'unchecked')
  assert.equal(await verdictOn(structured(usual)), 'unchecked')
})

test('a new type at a known path is drift: reported with its path, and not incorrect', async () => {
  const { events, judge } = await learned()
  const outcome = await judge(jsonResult({ ...usual, items: [{ id: '1' }] }))
  assert.equal(outcome.kind === 'answered' && outcome.verdict, 'drift')
  assert.equal(isIncorrect(outcome), false)
  assert.deepEqual(events, [
    {
      type: 'drift',
      set: 'default',
      server: 'test',
      tool: 'tool',
      detail: { path: '/items/*/id', was: 'number', now: 'string' },
    },
  ])
})

test('a member that was always there and is gone is drift', async () => {
  const { events, verdictOn } = await learned()
  assert.equal(await verdictOn(jsonResult({ items: usual.items })), 'drift')
  assert.deepEqual(events[0]?.detail, { path: '/page', was: 'object', now: 'missing' })
})

test('plain text from a tool that gave JSON is drift', async () => {
  const { events, verdictOn } = await learned()
  assert.equal(await verdictOn(textResult('Something went wrong.')), 'drift')
  assert.deepEqual(events[0]?.detail, { path: '', was: 'object', now: 'text' })
})

test('nothing is drift while a tool is being learned', async () => {
  const { repeat, verdictOn } = setUp()
  await repeat(10, jsonResult({ a: 1 }))
  assert.equal(await verdictOn(jsonResult({ a: 'x' })), 'unchecked')
  await repeat(9, jsonResult({ a: 1 }))
  assert.equal(await verdictOn(jsonResult({ a: 'y' })), 'unchecked')
  assert.equal(await verdictOn(jsonResult({ a: null })), 'drift')
})

test('each drift is reported once, and different ones at a distance', async () => {
  const { clock, events, judge } = await learned()
  const gone = jsonResult({ page: usual.page })
  const other = jsonResult({ items: usual.items, page: null })
  for (let i = 0; i < 3; i++) {
    await judge(gone)
    await judge(jsonResult(usual))
  }
  await judge(other)
  assert.equal(events.length, 1)
  await clock.advance(10_000)
  await judge(gone)
  assert.equal(events.length, 1)
  await judge(other)
  assert.deepEqual(events[1]?.detail, { path: '/page', was: 'object', now: 'null' })
})

test('a drift that persists is the new shape', async () => {
  const { repeat, verdictOn } = await learned()
  const changed = jsonResult({ items: 'none' })
  await repeat(19, changed)
  assert.equal(await verdictOn(changed), 'drift')
  assert.equal(await verdictOn(changed), 'unchecked')
  assert.equal(await verdictOn(jsonResult(usual)), 'drift')
})

test('a drift now and then is never learned', async () => {
  const { repeat, verdictOn } = await learned()
  for (let i = 0; i < 30; i++) {
    assert.equal(await verdictOn(jsonResult({ items: 'none' })), 'drift')
    await repeat(1, jsonResult(usual))
  }
})

test('a tool that changes is learned anew', async () => {
  const { change, verdictOn } = await learned()
  change({ fingerprint: 'c' })
  assert.equal(await verdictOn(jsonResult(['another', 'thing'])), 'unchecked')
})

test('maps are known by what they hold, not by their names', async () => {
  const { repeat, events, verdictOn } = setUp()
  const prices = (from: number, price: unknown) =>
    jsonResult({
      prices: Object.fromEntries(Array.from({ length: 5 }, (_, i) => [`day ${from + i}`, price])),
    })
  for (let day = 0; day < 20; day++) await repeat(1, prices(day * 5, 1))
  assert.equal(await verdictOn(prices(500, 2)), 'unchecked')
  assert.equal(await verdictOn(prices(600, '2')), 'drift')
  assert.equal(events[0]?.detail?.path, '/prices/*')
})

test('the memory of shapes is bounded, for replies of any width and depth', () => {
  const shape = new Shape()
  let deep: unknown = 1
  for (let i = 0; i < 500; i++) deep = { deep }
  shape.learn({ deep })
  assert.ok(shape.paths <= 9)
  const names = (prefix: string) => Array.from({ length: 30 }, (_, i) => `${prefix}${i}`)
  const wide = Object.fromEntries(
    names('a').map((a) => [a, Object.fromEntries(names('b').map((b) => [b, 1]))]),
  )
  shape.learn(wide)
  assert.ok(shape.paths <= 200)
  shape.learn(Object.fromEntries(Array.from({ length: 10_000 }, (_, i) => [`key${i}`, i])))
  assert.ok(shape.paths <= 200)
})

test('names that every object inherits are no members', async () => {
  const { repeat, verdictOn } = setUp()
  await repeat(20, jsonResult({ constructor: 'Ada', ok: true }))
  assert.equal(await verdictOn(jsonResult({ ok: true })), 'drift')
  assert.equal(
    await verdictOn(textResult('{"constructor":"Ada","ok":true,"__proto__":{"x":1}}')),
    'unchecked',
  )
})

test('learned shapes can be read, and survive a reload', async () => {
  const { context } = await learned()
  const [entry] = context.state.list<ToolMemories>('shape')
  assert.deepEqual(entry?.[1].snapshot(), { settled: true, paths: 7, drifting: 0, drifts: [] })
})

test('without shapes nothing drifts', async () => {
  const { repeat, verdictOn } = setUp({ shapes: false })
  await repeat(30, jsonResult({ a: 1 }))
  assert.equal(await verdictOn(jsonResult({ a: 'x' })), 'unchecked')
})
