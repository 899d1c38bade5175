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
import { withInjected } from '../../src/mesh/injected.ts'
import type { ListKind } from '../../src/protocol/lists.ts'
import type { Era } from '../../src/protocol/versions.ts'

/** Answers list requests in turn with these results, as JSON text, and records the requests. */
function pages(...results: string[]): { ask: Ask; asked: unknown[] } {
  const asked: unknown[] = []
  const ask: Ask = (method, params) => {
    const text = `{"jsonrpc":"2.0","id":1,"result":${results[asked.length] ?? results.at(-1)} }`
    asked.push([method, params])
    return Promise.resolve({ text, value: JSON.parse(text) as Record<string, unknown> })
  }
  return { ask, asked }
}

/** A minimal tool, as JSON text. */
const tool = (name: string, more = '') => `{"name":"${name}","inputSchema":{"type":"object"}${more}}`

const LIMIT = 1024 ** 2

/** Fetches a complete list. */
async function fetchList(kind: ListKind, ask: Ask): Promise<readonly CatalogEntry[]> {
  const { entries, cut } = await fetchUpTo(kind, ask, LIMIT, 'modern')
  assert.equal(cut, undefined)
  return entries
}

const keys = (entries: readonly CatalogEntry[]) => entries.map(({ key }) => key)

/** Returns the names kept of a list of tools, and why the list is incomplete. */
async function partly(ask: Ask): Promise<[string[], string | undefined]> {
  const { entries, cut } = await fetchUpTo('tools', ask, LIMIT, 'modern')
  return [keys(entries), cut]
}

test('all pages of a list are fetched, also behind an empty cursor', async () => {
  const { ask, asked } = pages(
    `{"tools":[${tool('a')}],"nextCursor":""}`,
    `{"tools":[${tool('b')},${tool('c')}],"nextCursor":"2"}`,
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
    [
      'resourceTemplates',
      'resources/templates/list',
      '{"resourceTemplates":[{"uriTemplate":"p","name":"n"}]}',
    ],
  ] as const) {
    const { ask, asked } = pages(list)
    assert.deepEqual(keys(await fetchList(kind, ask)), ['p'])
    assert.deepEqual(asked, [[method, {}]])
  }
})

test('an entry keeps its text to the byte', async () => {
  const entry =
    '{ "x-n":12345678901234567890,"name":"\\u0061", "inputSchema":{"b":1.0,"type":"object","a":[ ]} }'
  const [found] = await fetchList('tools', pages(`{"tools":[ ${entry} ]}`).ask)
  assert.equal(found?.text, entry)
  assert.equal(found?.key, 'a')
  assert.deepEqual(found?.value, JSON.parse(entry))
})

test('entries without a name are left out and counted, and an answer that is no list is an error', async () => {
  const mixed = `{"tools":[null,1,"x",[],{},{"name":7},{"uri":"u"},${tool('a')}]}`
  assert.deepEqual(await partly(pages(mixed).ask), [
    ['a'],
    '7 malformed entries are left out: it is no object',
  ])
  for (const result of ['{}', '{"tools":{}}', '{"tools":null}', '{"prompts":[{"name":"a"}]}']) {
    const error = { reason: 'bad_reply', message: 'tools/list returned no list' }
    await assert.rejects(fetchList('tools', pages(result).ask), error, result)
  }
  const unknown = { error: { code: -32601, message: 'no' } }
  const ask: Ask = () => Promise.resolve({ text: JSON.stringify(unknown), value: unknown })
  assert.deepEqual(await fetchList('prompts', ask), [])
})

test('the later of two entries with one name counts, with a warning', async () => {
  const { ask } = pages(`{"tools":[${tool('a')},${tool('b')},${tool('a', ',"v":2')}]}`)
  const { entries, cut } = await fetchUpTo('tools', ask, LIMIT, 'modern')
  assert.deepEqual(keys(entries), ['a', 'b'])
  assert.equal(entries[0]?.text, tool('a', ',"v":2'))
  assert.equal(cut, '"a" is the name of two entries: the last one counts')
})

/** Lists a single entry. Returns its kept text, or undefined, and the log message about the entry. */
async function kept(kind: ListKind, entry: string, era: Era = 'modern') {
  const { entries, cut } = await fetchUpTo(kind, pages(`{"${kind}":[${entry}]}`).ask, LIMIT, era)
  return [entries[0]?.text, cut]
}

test('a member that is null or malformed goes when an entry can do without it', async () => {
  for (const [kind, entry, left, why] of [
    [
      'resources',
      '{"uri":"u","name":"n","mimeType":null}',
      '{"uri":"u","name":"n"}',
      '"u", mimeType is null',
    ],
    ['resources', '{"size":"1","uri":"u","name":"n"}', '{"uri":"u","name":"n"}', '"u", size is malformed'],
    [
      'resourceTemplates',
      '{"uriTemplate":"u","title":null,"name":"n"}',
      '{"uriTemplate":"u","name":"n"}',
      '"u", title is null',
    ],
    ['prompts', '{"name":"p","arguments":null}', '{"name":"p"}', '"p", arguments is null'],
    [
      'tools',
      tool('t', ',"annotations":{"title":null,"readOnlyHint":true}'),
      tool('t', ',"annotations":{"readOnlyHint":true}'),
      '"t", annotations.title is null',
    ],
    ['tools', tool('t', ',"annotations":"yes"'), tool('t'), '"t", annotations is malformed'],
    ['tools', tool('t', ',"icons":[{}]'), tool('t'), '"t", icons.0.src is missing'],
  ] as const)
    assert.deepEqual(await kept(kind, entry), [left, `1 malformed entry is mended: of ${why}`], entry)
})

test('a member that is missing comes where there is one thing to say', async () => {
  for (const [kind, entry, left, why] of [
    ['tools', '{"name":"t"}', '{"inputSchema":{"type":"object"},"name":"t"}', '"t", inputSchema is missing'],
    [
      'tools',
      '{"name":"t","inputSchema":null}',
      '{"inputSchema":{"type":"object"},"name":"t"}',
      '"t", inputSchema is null',
    ],
    [
      'tools',
      '{"name":"t","inputSchema":{}}',
      '{"name":"t","inputSchema":{"type":"object"}}',
      '"t", inputSchema.type is missing',
    ],
    ['resources', '{"uri":"u"}', '{"name":"u","uri":"u"}', '"u", name is missing'],
  ] as const)
    assert.deepEqual(await kept(kind, entry), [left, `1 malformed entry is mended: of ${why}`], entry)
})

test('a tool of the legacy era keeps no output schema but that of an object', async () => {
  const tree = '"$defs":{"N":{"type":"object"}},"$ref":"#/$defs/N"'
  const typed = tool('t', `,"outputSchema":{"type":"object",${tree}}`)
  for (const [outputSchema, left, why] of [
    [`{${tree}}`, typed, 'outputSchema.type is missing'],
    [`{"type":null,${tree}}`, typed, 'outputSchema.type is null'],
    ['{}', tool('t', ',"outputSchema":{"type":"object"}'), 'outputSchema.type is missing'],
    ['{"type":"array","items":{"type":"string"}}', tool('t'), 'outputSchema.type is malformed'],
    ['{"type":["object","null"]}', tool('t'), 'outputSchema.type is malformed'],
    ['{"$ref":"#/$defs/none"}', tool('t'), 'outputSchema.type is missing'],
  ] as const) {
    const entry = tool('t', `,"outputSchema":${outputSchema}`)
    const said = `1 malformed entry is mended: of "t", ${why}`
    assert.deepEqual(await kept('tools', entry, 'legacy'), [left, said], entry)
  }
  const wide = tool('t', ',"outputSchema":{"type":"array"}')
  assert.deepEqual(await kept('tools', wide, 'modern'), [wide, undefined])
})

test('an entry that nobody can read is left out', async () => {
  for (const [kind, entry, why] of [
    ['tools', '{"name":"t","inputSchema":"object"}', 'of "t", inputSchema is malformed'],
    ['tools', '{"name":"t","inputSchema":{"type":"string"}}', 'of "t", inputSchema.type is malformed'],
    [
      'tools',
      '{"name":"t","inputSchema":{"type":"object","properties":{"a":true}}}',
      'of "t", inputSchema.properties.a is malformed',
    ],
    ['prompts', '{"name":null}', 'name is missing'],
    ['resources', '{"uri":null,"name":"n"}', 'uri is missing'],
    ['resources', '{"uri":"u","name":7}', 'of "u", name is malformed'],
  ] as const)
    assert.deepEqual(await kept(kind, entry), [undefined, `1 malformed entry is left out: ${why}`], entry)
})

test('pages that go in circles because of faults name these', async () => {
  const { ask } = pages(`{"tools":[${tool('a')}],"nextCursor":"1"}`)
  const faulted: Ask = async (method, params) => {
    const { text, value } = await ask(method, params)
    withInjected({ kind: 'answered', verdict: 'correct', result: { text, value, status: 200 } }, ['b', 'c'])
    return { text, value }
  }
  assert.deepEqual(await partly(faulted), [['a'], 'the pages go in circles (injected: b, c)'])
})

test('a server with endless or circular pages is followed for a while, and its entries are kept', async () => {
  const same = pages(`{"tools":[${tool('a')}],"nextCursor":"1"}`)
  assert.deepEqual(await partly(same.ask), [['a'], 'the pages go in circles'])
  assert.equal(same.asked.length, 2)
  const endless = (cursor: (page: number) => string) => {
    let page = 0
    return (): ReturnType<Ask> => {
      const text = `{"result":{"tools":[${tool(String(page))}],"nextCursor":"${cursor(page++)}"}}`
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

test('a list beyond the limit of entries or bytes keeps its first part, and no further page is requested', async () => {
  const entries = (count: number) =>
    `{"tools":[${Array.from({ length: count }, (_, n) => tool(String(n))).join()}],"nextCursor":"2"}`
  const many = pages(entries(10_001))
  const [kept, cut] = await partly(many.ask)
  assert.deepEqual([kept.length, kept.at(-1), cut], [10_000, '9999', 'more than 10000 entries'])
  assert.equal(many.asked.length, 1)
  const large = (name: string, next: string) =>
    `{"tools":[${tool(name, `,"description":"${'ü'.repeat(200_000)}"`)}],"nextCursor":"${next}"}`
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
    tool(String(levels), `,"x":${'['.repeat(levels - 1)}${']'.repeat(levels - 1)}`)
  const list = pages(`{"tools":[${[256, 257, 100_000].map(deep).join()},${tool('last')}]}`)
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
  const before = await catalog(tool('a'), tool('b'))
  assert.deepEqual(changedKinds(before, await catalog(tool('a'), tool('b'))), [])
  for (const after of [
    await catalog(tool('b'), tool('a')),
    await catalog(tool('a')),
    await catalog(tool('a'), tool('b', ',"description":""')),
    emptyCatalog,
  ]) {
    assert.deepEqual(changedKinds(before, after), ['tools'])
  }
  assert.deepEqual(changedKinds(emptyCatalog, { ...emptyCatalog, fetchedAt: 1 }), [])
})
