import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  changedKinds,
  emptyCatalog,
  fetchList as fetchUpTo,
  type Ask,
  type Catalog,
  type CatalogEntry,
} from '../../src/registry/catalog.ts'
import type { ListKind } from '../../src/registry/kinds.ts'

/** Answers one list request after the other with these results, as JSON text, and writes down what was asked. */
function pages(...results: string[]): { ask: Ask; asked: unknown[] } {
  const asked: unknown[] = []
  const ask: Ask = (method, params) => {
    const text = `{"jsonrpc":"2.0","id":1,"result":${results[asked.length] ?? results.at(-1)} }`
    asked.push([method, params])
    return Promise.resolve({ text, value: JSON.parse(text) as Record<string, unknown> })
  }
  return { ask, asked }
}

const LIMIT = 1024 ** 2

/** Fetches a list that is all there. */
async function fetchList(kind: ListKind, ask: Ask): Promise<readonly CatalogEntry[]> {
  const { entries, cut } = await fetchUpTo(kind, ask, LIMIT)
  assert.equal(cut, undefined)
  return entries
}

const keys = (entries: readonly CatalogEntry[]) => entries.map(({ key }) => key)

/** The names of what is kept of a list of tools, and why it is not all. */
async function partly(ask: Ask): Promise<[string[], string | undefined]> {
  const { entries, cut } = await fetchUpTo('tools', ask, LIMIT)
  return [keys(entries), cut]
}

test('all pages of a list are fetched, also behind an empty cursor', async () => {
  const { ask, asked } = pages(
    '{"tools":[{"name":"a"}],"nextCursor":""}',
    '{"tools":[{"name":"b"},{"name":"c"}],"nextCursor":"2"}',
    '{"tools":[]}',
  )
  assert.deepEqual(keys(await fetchList('tools', ask)), ['a', 'b', 'c'])
  assert.deepEqual(asked, [
    ['tools/list', {}],
    ['tools/list', { cursor: '' }],
    ['tools/list', { cursor: '2' }],
  ])
})

test('every kind of list has a method and a key of its own', async () => {
  for (const [kind, method, list] of [
    ['prompts', 'prompts/list', '{"prompts":[{"name":"p"}]}'],
    ['resources', 'resources/list', '{"resources":[{"uri":"p","name":"n"}]}'],
    ['resourceTemplates', 'resources/templates/list', '{"resourceTemplates":[{"uriTemplate":"p"}]}'],
  ] as const) {
    const { ask, asked } = pages(list)
    assert.deepEqual(keys(await fetchList(kind, ask)), ['p'])
    assert.deepEqual(asked, [[method, {}]])
  }
})

test('an entry keeps its text to the byte', async () => {
  const entry = '{ "x-n":12345678901234567890,"name":"\\u0061", "inputSchema":{"b":1.0,"a":[ ]} }'
  const [found] = await fetchList('tools', pages(`{"tools":[ ${entry} ]}`).ask)
  assert.equal(found?.text, entry)
  assert.equal(found?.key, 'a')
  assert.deepEqual(found?.value, JSON.parse(entry))
})

test('entries without a name and lists that are none are passed over', async () => {
  const mixed = '{"tools":[null,1,"x",[],{},{"name":7},{"uri":"u"},{"name":"a"}]}'
  assert.deepEqual(keys(await fetchList('tools', pages(mixed).ask)), ['a'])
  for (const result of ['{}', '{"tools":{}}', '{"tools":null}', '{"prompts":[{"name":"a"}]}']) {
    assert.deepEqual(await fetchList('tools', pages(result).ask), [], result)
  }
})

test('of two entries with one name the later one counts', async () => {
  const [entry, ...more] = await fetchList('tools', pages('{"tools":[{"name":"a"},{"name":"a","v":2}]}').ask)
  assert.equal(entry?.text, '{"name":"a","v":2}')
  assert.equal(more.length, 0)
})

test('a server that goes in circles, or on for ever, is followed for a while, and what it said is kept', async () => {
  const same = pages('{"tools":[{"name":"a"}],"nextCursor":"1"}')
  assert.deepEqual(await partly(same.ask), [['a'], 'the pages go in circles'])
  assert.equal(same.asked.length, 2)
  const endless = (cursor: (page: number) => string) => {
    let page = 0
    return (): ReturnType<Ask> => {
      const text = `{"result":{"tools":[{"name":"${page}"}],"nextCursor":"${cursor(page++)}"}}`
      return Promise.resolve({ text, value: JSON.parse(text) as Record<string, unknown> })
    }
  }
  assert.deepEqual(await partly(endless((page) => String(page % 2))), [
    ['0', '1', '2'],
    'the pages go in circles',
  ])
  const [entries, cut] = await partly(endless(String))
  assert.deepEqual([entries.length, cut], [1_000, 'more than 1000 pages'])
  assert.deepEqual(await partly(endless(() => 'x'.repeat(8_193))), [
    ['0'],
    'a cursor of more than 8192 characters',
  ])
})

test('of a list with more entries or bytes than are kept the first part is, and no page more is asked for', async () => {
  const entries = (count: number) =>
    `{"tools":[${Array.from({ length: count }, (_, n) => `{"name":"${n}"}`).join()}],"nextCursor":"2"}`
  const many = pages(entries(10_001))
  const [kept, cut] = await partly(many.ask)
  assert.deepEqual([kept.length, kept.at(-1), cut], [10_000, '9999', 'more than 10000 entries'])
  assert.equal(many.asked.length, 1)
  const large = (name: string, next: string) =>
    `{"tools":[{"name":"${name}","description":"${'ü'.repeat(200_000)}"}],"nextCursor":"${next}"}`
  const threePages = pages(large('a', '2'), large('b', '3'), large('c', '4'))
  assert.deepEqual(await partly(threePages.ask), [['a', 'b'], 'more than 1048576 bytes'])
  const blank = pages(
    `{"tools":[${' '.repeat(600_000)}],"nextCursor":"1"}`,
    `{"tools":[${' '.repeat(600_000)}],"nextCursor":"2"}`,
  )
  assert.deepEqual(await partly(blank.ask), [[], 'more than 1048576 bytes'])
  assert.equal(blank.asked.length, 2)
})

test('entries that are nested too deep are left out, and the others are kept', async () => {
  const deep = (levels: number) =>
    `{"name":"${levels}","x":${'['.repeat(levels - 1)}${']'.repeat(levels - 1)}}`
  const list = pages(`{"tools":[${[256, 257, 100_000].map(deep).join()},{"name":"last"}]}`)
  assert.deepEqual(await partly(list.ask), [
    ['256', 'last'],
    'entries nested deeper than 256 levels are left out',
  ])
})

/** A catalog with these tools, each as JSON text. */
async function catalog(...tools: string[]): Promise<Catalog> {
  const lists = {
    ...emptyCatalog.lists,
    tools: await fetchList('tools', pages(`{"tools":[${tools.join()}]}`).ask),
  }
  return { fetchedAt: 0, lists }
}

test('a catalog changed when any byte of an entry did, or their order', async () => {
  const before = await catalog('{"name":"a"}', '{"name":"b"}')
  assert.deepEqual(changedKinds(before, await catalog('{"name":"a"}', '{"name":"b"}')), [])
  for (const after of [
    await catalog('{"name":"b"}', '{"name":"a"}'),
    await catalog('{"name":"a"}'),
    await catalog('{"name":"a"}', '{"name":"b","description":""}'),
    emptyCatalog,
  ]) {
    assert.deepEqual(changedKinds(before, after), ['tools'])
  }
  assert.deepEqual(changedKinds(emptyCatalog, { ...emptyCatalog, fetchedAt: 1 }), [])
})
