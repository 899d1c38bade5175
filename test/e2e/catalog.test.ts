import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { until } from '../support/until.ts'
import { cleanUp, Gateway, type Json } from './support/gateway.ts'
import { RawClient } from './support/raw-client.ts'
import { closeServers, RawServer, sendResult } from './support/raw-server.ts'
import { closeClients, connect } from './support/sdk-client.ts'
import { HttpToolbox, stdioToolbox } from './support/toolbox.ts'

const LIST_CHANGED = 'notifications/tools/list_changed'
const EXTRA = 1_200

/**
 * Longest time until a returned server is noticed, in milliseconds: probes come every 30 s in the end, and sooner at
 * first.
 */
const UNSEEN_MS = 60_000

let gateway: Gateway

before(async () => {
  const many = { TOOLBOX_EXTRA: String(EXTRA), TOOLBOX_PAGE: '100' }
  gateway = await Gateway.start({
    servers: {
      many: stdioToolbox({ env: many }),
      picky: stdioToolbox({ tools: { include: ['e*', 'pid'], exclude: ['env'] } }),
      stormy: stdioToolbox(),
    },
  })
  await gateway.waitFor('up', 'many', 'picky', 'stormy')
})
after(async () => {
  await closeClients()
  closeServers()
  await cleanUp()
})

interface Tools {
  readonly names: string[]
  readonly partial: Json | undefined
}

async function toolsOf(client: RawClient): Promise<Tools> {
  const names: string[] = []
  let params: Json = {}
  for (;;) {
    const { result } = (await client.request('tools/list', params)) as {
      result: { tools: { name: string }[]; nextCursor?: string; _meta?: Record<string, Json> }
    }
    names.push(...result.tools.map(({ name }) => name))
    if (result.nextCursor === undefined) return { names, partial: result._meta?.['dev.breakwater/partial'] }
    params = { cursor: result.nextCursor }
  }
}

const UI = 'io.modelcontextprotocol/ui'

/** A server with extensions and a tool with a user interface, which its results name too. */
function withInterface(extensions: Json): Promise<RawServer> {
  const meta = { ui: { resourceUri: 'ui://w/a' }, 'openai/outputTemplate': 'ui://w/b' }
  return RawServer.start(({ message: { id, method, params } }, response) => {
    const results: Readonly<Record<string, Json>> = {
      initialize: {
        protocolVersion: (params as Json | undefined)?.protocolVersion,
        capabilities: { tools: {}, extensions },
        serverInfo: { name: 'ui', version: '1' },
      },
      'tools/list': { tools: [{ name: 'show', inputSchema: { type: 'object' }, _meta: meta }] },
      'tools/call': { content: [{ type: 'text', text: 'shown' }], _meta: meta },
    }
    const result = results[String(method)]
    if (result === undefined) return false
    return sendResult(response, id, result)
  })
}

test('user interfaces are named as the aggregate names them, in lists and results, and extensions are those of all servers', async () => {
  const [a, b] = await Promise.all([
    withInterface({ [UI]: { mimeTypes: ['text/html', 'x/a'] }, 'x/own': { of: 'a' } }),
    withInterface({ [UI]: { mimeTypes: ['text/html', 'x/b'] }, 'x/own': { of: 'b', more: 1 }, broken: 7 }),
  ])
  const interfaces = await Gateway.start({ servers: { a: { url: a.url }, b: { url: b.url } } })
  await interfaces.waitFor('up', 'a', 'b')
  const client = await RawClient.open(interfaces.mcp())
  const { capabilities } = client.welcome.result as { capabilities: Json }
  assert.deepEqual(capabilities.extensions, {
    [UI]: { mimeTypes: ['text/html', 'x/a', 'x/b'] },
    'x/own': { of: 'a', more: 1 },
  })
  const exposed = { ui: { resourceUri: 'ui://b__w/a' }, 'openai/outputTemplate': 'ui://b__w/b' }
  const { tools } = (await client.request('tools/list')).result as { tools: Json[] }
  assert.deepEqual(tools.find(({ name }) => name === 'b__show')?._meta, exposed)
  const { _meta: meta } = (await client.call('b__show')).result as Json
  assert.deepEqual(meta, exposed)
})

test('long lists come in pages, on both endpoints, without a gap', async () => {
  const expected = Array.from({ length: EXTRA }, (_, index) => `extra_${index}`)
  for (const [url, prefix] of [
    [gateway.mcp('many'), ''],
    [gateway.mcp(), 'many__'],
  ] as const) {
    const client = await connect(url)
    const names: string[] = []
    let pages = 0
    let cursor: string | undefined
    do {
      const page = await client.listTools({ cursor })
      names.push(...page.tools.map(({ name }) => name))
      cursor = page.nextCursor
      pages++
    } while (cursor !== undefined)
    assert.ok(pages > 1)
    const extras = names.filter((name) => name.startsWith(`${prefix}extra_`))
    assert.deepEqual(
      extras,
      expected.map((name) => prefix + name),
    )
  }
})

test('the gateway refuses an invented cursor', async () => {
  const client = await RawClient.open(gateway.mcp())
  for (const cursor of ['', 'nonsense', 'WyJub3doZXJlIiwwXQ', 7]) {
    const { error } = (await client.request('tools/list', { cursor })) as { error?: Json }
    assert.equal(error?.code, -32602, String(cursor))
  }
})

test('tools that are filtered out are neither listed nor called, on both endpoints', async () => {
  const one = await RawClient.open(gateway.mcp('picky'))
  const all = await RawClient.open(gateway.mcp())
  assert.deepEqual((await toolsOf(one)).names, ['echo', 'pid'])
  const among = (await toolsOf(all)).names.filter((name) => name.startsWith('picky__'))
  assert.deepEqual(among, ['picky__echo', 'picky__pid'])
  for (const [client, prefix] of [
    [one, ''],
    [all, 'picky__'],
  ] as const) {
    for (const hidden of ['env', 'session']) {
      const { error } = (await client.call(prefix + hidden)) as { error: Json }
      assert.equal(error.code, -32602, hidden)
    }
    assert.equal(await client.say(`${prefix}echo`, { text: 'seen' }), 'seen')
  }
})

test('a storm of changes reaches clients as a few notifications', async () => {
  for (const [url, prefix] of [
    [gateway.mcp('stormy'), ''],
    [gateway.mcp(), 'stormy__'],
  ] as const) {
    const client = await RawClient.open(url)
    const stream = await client.listen()
    await client.say(`${prefix}storm`, { count: 200 })
    await client.say(`${prefix}add`, { name: `calm_${prefix}` })
    await until('the last change is seen', async () => {
      const { names } = await toolsOf(client)
      return names.includes(`${prefix}calm_${prefix}`) && stream.messages(LIST_CHANGED).length > 0
    })
    const told = stream.messages(LIST_CHANGED).length
    assert.ok(told <= 5, `told ${told} times`)
  }
})

test('malformed entries of one server keep official clients from nothing that others offer', async () => {
  const inputSchema = { type: 'object' }
  const tree = { $defs: { node: { type: 'object', required: ['v'] } }, $ref: '#/$defs/node' }
  const lists: Json = {
    tools: [
      { name: 'bare' },
      { name: 'odd', inputSchema: 'any' },
      { name: 'good', inputSchema: { ...inputSchema, $schema: 7 }, title: null },
      // The SDK compiles all output schemas of a list, and resolves ids across servers.
      {
        name: 'lost',
        inputSchema,
        outputSchema: { type: 'object', properties: { a: { $ref: '#/$defs/a' } } },
      },
      { name: 'odder', inputSchema, outputSchema: { type: 'object', properties: { a: { type: 'text' } } } },
      { name: 'loop', inputSchema, outputSchema: { $ref: '#' } },
      { name: 'void', inputSchema, outputSchema: { $ref: '#/$defs/a', required: null } },
      { name: 'same', inputSchema, outputSchema: { $id: 'urn:same', type: 'object' } },
      { name: 'promised', inputSchema, outputSchema: { $async: true, type: 'object' } },
      // Results of this era are objects, so the SDK refuses a list with an output schema of another type.
      { name: 'tree', inputSchema, outputSchema: tree },
      { name: 'array', inputSchema, outputSchema: { type: 'array' } },
      7,
    ],
    prompts: [{ name: 'asks', arguments: null }, { name: null }],
    resources: [{ uri: 'a://b', name: 'b', mimeType: null }, { name: 'nowhere' }],
    resourceTemplates: [{ uriTemplate: 'a://{b}' }, { uriTemplate: 'a://{c}', name: 'c', icons: 'none' }],
  }
  const malformed = await RawServer.start(({ message: { id, method } }, response) => {
    const capabilities = { tools: {}, prompts: {}, resources: {} }
    const serverInfo = { name: 'malformed', version: '1.0.0' }
    const isAsked = method === 'initialize' || method === 'tools/call' || String(method).endsWith('list')
    if (!isAsked) return false
    if (method === 'tools/call') {
      const result = { content: [], structuredContent: { v: 1 } }
      return sendResult(response, id, result)
    }
    const result = { protocolVersion: '2025-11-25', capabilities, serverInfo, ...lists }
    return sendResult(response, id, result)
  })
  const own = await Gateway.start({ servers: { malformed: { url: malformed.url }, good: stdioToolbox() } })
  await own.waitFor('up', 'malformed', 'good')
  const client = await connect(own.mcp())
  const { tools, _meta } = await client.listTools()
  const theirs = tools.flatMap(({ name }) => (name.startsWith('malformed__') ? name : []))
  assert.deepEqual(
    theirs,
    ['bare', 'good', 'lost', 'odder', 'loop', 'void', 'same', 'promised', 'tree', 'array'].map(
      (name) => `malformed__${name}`,
    ),
  )
  const output = (name: string) => tools.find((tool) => tool.name === `malformed__${name}`)?.outputSchema
  const good = tools.find(({ name }) => name === 'malformed__good')
  assert.deepEqual(good?.inputSchema, inputSchema)
  for (const name of ['lost', 'odder', 'loop', 'void', 'promised', 'array'])
    assert.equal(output(name), undefined, name)
  assert.deepEqual(output('same'), { type: 'object' })
  assert.deepEqual(output('tree'), { type: 'object', ...tree })
  // The SDK checks structured content by the listed schema.
  const called = await client.callTool({ name: 'malformed__tree', arguments: {} })
  assert.deepEqual(called.structuredContent, { v: 1 })
  assert.ok(tools.some(({ name }) => name === 'good__echo'))
  const { prompts } = await client.listPrompts()
  const { resources } = await client.listResources()
  const { resourceTemplates } = await client.listResourceTemplates()
  assert.deepEqual([prompts.length, resources.length, resourceTemplates.length], [1, 1, 2])

  const why =
    '2 malformed entries are left out: of "odd", inputSchema is malformed; 10 malformed entries are mended: of "bare", inputSchema is missing'
  const partial = _meta?.['dev.breakwater/partial'] as Json | undefined
  assert.equal(partial?.reason, `different from the server's own list: malformed (${why})`)
  const { body } = await own.admin<Json[]>('/admin/servers')
  const { cut } = body.find(({ name }) => name === 'malformed') as { cut: Json }
  assert.equal(cut.tools, why)
  assert.deepEqual(Object.keys(cut).sort(), ['prompts', 'resourceTemplates', 'resources', 'tools'])
})

test('a server that died keeps its tools for a while, loses them, and gets them back by itself', async () => {
  const remote = await HttpToolbox.start()
  const mortal = { url: remote.url, health: { every: '1s' } }
  await remote.program.kill()
  // A separate gateway: sessions on the aggregate hear of changes of all servers, a little later.
  const alone = await Gateway.start({ servers: { mortal: { ...mortal, grace: '1h' } } })
  await alone.waitFor('down', 'mortal')
  const client = await RawClient.open(alone.mcp())
  const stream = await client.listen()
  const isListed = async () => (await toolsOf(client)).names.includes('mortal__echo')
  const areTold = (times: number) =>
    until(`clients are told ${times} times`, () => stream.messages(LIST_CHANGED).length === times)

  // Nothing was listed before the client listened, so it hears of each change.
  await remote.revive()
  await until('the tools of the server are listed', isListed, UNSEEN_MS)
  await areTold(1)

  await remote.program.kill()
  await alone.waitFor('down', 'mortal')
  const { names, partial } = await toolsOf(client)
  assert.ok(names.includes('mortal__echo'))
  assert.equal(partial?.source, 'stale')
  assert.match(String(partial.reason), /mortal/)
  assert.equal(stream.messages(LIST_CHANGED).length, 1)

  // The grace period ends only now, when the test wants it to.
  await alone.reconfigure({ servers: { mortal: { ...mortal, grace: '1ms' } } })
  await until('the tools of the server have left', async () => !(await isListed()))
  assert.deepEqual((await toolsOf(client)).partial?.missing, ['mortal'])
  await areTold(2)

  await remote.revive()
  await until('the tools of the server are back', isListed, UNSEEN_MS)
  await areTold(3)
  assert.equal((await toolsOf(client)).partial, undefined)
})
