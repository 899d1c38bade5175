import assert from 'node:assert/strict'
import { test } from 'node:test'
import { jsonResult, setUp, structured, textResult } from './judged.ts'

const row = (id: number) => ({ id })
const rows = (count: number) => Array.from({ length: count }, (_, id) => row(id))

test('a partial result declared by the server is passed on, bounded', async () => {
  const { judge } = setUp()
  const declared = {
    source: 'stale',
    reason: `line\nbreak ${'x'.repeat(400)}`,
    missing: [7, ...Array.from({ length: 40 }, () => 'p'.repeat(300))],
    completeness: 1.7,
    notice: true,
  }
  const outcome = await judge({ content: [], _meta: { 'dev.breakwater/partial': declared } })
  assert.ok(outcome.kind === 'answered' && outcome.partial !== undefined)
  assert.equal(outcome.verdict, 'partial_declared')
  const { source, reason, missing, completeness, notice } = outcome.partial
  assert.deepEqual([source, completeness, notice], ['declared', 1, false])
  assert.equal(reason.length, 300)
  assert.match(reason, /^line break x/)
  assert.equal(missing?.length, 20)
  assert.ok(missing.every((item) => item.length === 200))
})

test('a declaration that says nothing still is one, and one that is no object is none', async () => {
  const { partialOf, verdictOn } = setUp()
  assert.deepEqual(await partialOf({ content: [], _meta: { 'dev.breakwater/partial': {} } }), {
    source: 'declared',
    reason: 'declared partial by the server',
    notice: false,
  })
  assert.equal(await verdictOn({ content: [], _meta: { 'dev.breakwater/partial': true } }), 'unchecked')
})

test('JSON text that ends in the middle is partial', async () => {
  const { judge } = setUp()
  const outcome = await judge(textResult('{"items":[{"id":1},{"id'))
  assert.ok(outcome.kind === 'answered')
  assert.equal(outcome.verdict, 'partial_silent')
  assert.deepEqual(outcome.partial, {
    source: 'detected',
    reason: 'the JSON text ends in the middle',
    notice: false,
  })
})

test('text that claims to be JSON and is broken is invalid; prose that begins with a bracket is prose', async () => {
  const { verdictOn } = setUp()
  assert.equal(await verdictOn(textResult('{"a": NaN}')), 'json_invalid')
  assert.equal(await verdictOn(textResult('[{"a":1},,]')), 'json_invalid')
  for (const text of [
    '[INFO] started',
    '[link](http://example.com)',
    '[1] See the footnote.',
    '{{name}} is a template',
    "{'python': 'repr'}",
    '{"a":1}\n{"a":2}',
    '{"a":1} and a note',
    '[',
    '{',
  ]) {
    assert.equal(await verdictOn(textResult(text)), 'unchecked', text)
  }
})

test('a tool that always gave JSON must keep giving JSON', async () => {
  const { repeat, verdictOn } = setUp()
  await repeat(5, jsonResult({ a: 1 }))
  assert.equal(await verdictOn(textResult('[error] no result')), 'json_invalid')
  assert.equal(await verdictOn(textResult('{')), 'partial_silent')
})

test('huge texts are not read', async () => {
  const { verdictOn } = setUp()
  assert.equal(await verdictOn(textResult(`{"a":"${'x'.repeat(300_000)}`)), 'unchecked')
})

test('a text that says something else than the structured content is partial', async () => {
  const { judge } = setUp()
  const content = [{ type: 'text', text: '{"total":2,"items":[1]}' }]
  const outcome = await judge({ content, structuredContent: { items: [1, 2], total: 2 } })
  assert.ok(outcome.kind === 'answered')
  assert.equal(outcome.verdict, 'partial_silent')
  assert.equal(outcome.partial?.reason, 'the text and the structured content differ')
  assert.deepEqual(outcome.partial?.missing, ['/items/1'])
})

test('a text that never was a copy may have any content', async () => {
  const { verdictOn } = setUp()
  const structuredContent = { items: [1, 2] }
  for (const text of ['{"summary":"two items"}', 'Two items.', '[1,2]', '{ "items": [1,  2] }'])
    assert.equal(await verdictOn({ content: [{ type: 'text', text }], structuredContent }), 'unchecked', text)
})

test('a text that has been a copy before has to stay one, until the tool has changed for good', async () => {
  const { repeat, verdictOn } = setUp()
  const pair = (text: string) => ({ content: [{ type: 'text', text }], structuredContent: { a: 1 } })
  await repeat(3, pair('{"a":1}'))
  assert.equal(await verdictOn(pair('{"b":1}')), 'partial_silent')
  await repeat(19, pair('{"b":1}'))
  assert.equal(await verdictOn(pair('{"b":1}')), 'unchecked')
})

test('texts that always differ from the structured content are normal for the tool', async () => {
  const { repeat, verdictOn } = setUp()
  const pair = { content: [{ type: 'text', text: '{"a":"one"}' }], structuredContent: { a: 1 } }
  assert.equal(await verdictOn(pair), 'partial_silent')
  await repeat(4, pair)
  assert.equal(await verdictOn(pair), 'unchecked')
})

test('a list shorter than its stated total is partial', async () => {
  for (const wrap of [jsonResult, structured]) {
    const { partialOf } = setUp()
    assert.deepEqual(await partialOf(wrap({ total: 12, items: rows(3) })), {
      source: 'detected',
      reason: '3 items, but the reply itself says 12',
      missing: ['/items'],
      completeness: 0.25,
      notice: false,
    })
  }
})

test('members whose names only begin like those of a page do not excuse a short list', async () => {
  const { verdictOn } = setUp()
  const reply = { total: 12, items: rows(3), name: 'a', note: 'b', kind: 'c', topic: 'd' }
  assert.equal(await verdictOn(structured(reply)), 'partial_silent')
})

test('a page is no partial result: by its names, by its arguments, or by its length', async () => {
  const { verdictOn } = setUp()
  const short = { total: 12, items: rows(3) }
  for (const hint of [
    { nextCursor: 'x' },
    { next: null },
    { hasMore: true },
    { offset: 0 },
    { page: 1 },
    { per_page: 3 },
    { pagination: {} },
  ])
    assert.equal(await verdictOn(structured({ ...short, ...hint })), 'unchecked', JSON.stringify(hint))
  for (const args of [{ limit: 3 }, { pageSize: 3 }, { cursor: 'x' }, { top_k: 3, max_results: 3 }])
    assert.equal(await verdictOn(structured(short), args), 'unchecked', JSON.stringify(args))
  assert.equal(await verdictOn(structured({ total: 1_234, hits: rows(10) })), 'unchecked')
  assert.equal(await verdictOn(structured({ total: 3, a: rows(1), b: rows(2) })), 'unchecked')
  assert.equal(await verdictOn(structured({ total: 99.5, currency: 'EUR' })), 'unchecked')
  assert.equal(await verdictOn(structured({ total: 3, items: rows(3) })), 'unchecked')
})

test('a number beside a list that counts something else is no total of it', async () => {
  for (const value of [
    { total: 120, currency: 'EUR', items: rows(2) },
    { count: 3, warnings: ['slow'] },
    { count: 3, rejected: [] },
    { count: -1, items: rows(2) },
  ])
    assert.equal(await setUp().verdictOn(structured(value)), 'unchecked', JSON.stringify(value))
  assert.equal(await setUp().verdictOn(structured({ totalCount: 3, items: [] })), 'partial_silent')
})

test('a tool whose lists never are as long as their total is soon left alone', async () => {
  const { repeat, verdictOn } = setUp()
  await repeat(5, structured({ total: 37, matches: rows(3) }))
  assert.equal(await verdictOn(structured({ total: 37, matches: rows(3) })), 'unchecked')
})

test('a tool whose lists were always complete must keep them complete, even at a length that looks like a page', async () => {
  const { repeat, verdictOn } = setUp()
  await repeat(3, structured({ total: 20, items: rows(20) }))
  assert.equal(await verdictOn(structured({ total: 20, items: rows(10) })), 'partial_silent')
})

test('a first page that has lost its cursor is partial, a last page is not', async () => {
  const { repeat, partialOf, verdictOn } = setUp()
  await repeat(3, structured({ total: 30, items: rows(10), nextCursor: 'x' }))
  const lost = await partialOf(structured({ total: 30, items: rows(10), nextCursor: null }))
  assert.equal(lost?.reason, '10 of 30 items, without a cursor to the rest')
  assert.equal(await verdictOn(structured({ total: 30, items: rows(10) }), { cursor: 'y' }), 'unchecked')
  assert.equal(await verdictOn(structured({ total: 4, items: rows(4) })), 'unchecked')
})

test('without partials, only the claim to be JSON is looked at', async () => {
  const { verdictOn } = setUp({ partials: false })
  assert.equal(await verdictOn(textResult('{"cut')), 'unchecked')
  assert.equal(await verdictOn(structured({ total: 12, items: rows(3) })), 'unchecked')
  assert.equal(await verdictOn({ content: [], _meta: { 'dev.breakwater/partial': {} } }), 'unchecked')
  assert.equal(await verdictOn(textResult('{"a": NaN}')), 'json_invalid')
})
