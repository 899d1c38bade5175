import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  changedKinds,
  emptyCatalog,
  fetchList,
  type Ask,
  type Catalog,
  type Entry,
} from '../../src/registry/catalog.ts'

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

const keys = (entries: readonly Entry[]) => entries.map(({ key }) => key)

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

test('a server that goes in circles is not followed for ever', async () => {
  const same = pages('{"tools":[{"name":"a"}],"nextCursor":"1"}')
  assert.deepEqual(keys(await fetchList('tools', same.ask)), ['a'])
  assert.equal(same.asked.length, 2)
  let page = 0
  const ask: Ask = () => {
    const text = `{"result":{"tools":[],"nextCursor":"${page++ % 2}"}}`
    return Promise.resolve({ text, value: JSON.parse(text) as Record<string, unknown> })
  }
  await assert.rejects(fetchList('tools', ask), {
    reason: 'bad_reply',
    message: 'the list of tools has more than 1000 pages',
  })
})

test('a list of more entries than anybody can use is refused', async () => {
  const entries = (count: number) =>
    `{"tools":[${Array.from({ length: count }, (_, n) => `{"name":"${n}"}`).join()}]}`
  assert.equal((await fetchList('tools', pages(entries(20_000)).ask)).length, 20_000)
  await assert.rejects(fetchList('tools', pages(entries(20_001)).ask), { reason: 'bad_reply' })
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
