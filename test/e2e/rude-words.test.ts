import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { hasUnprintable } from '../../src/telemetry/printable.ts'
import { rudeNames, rudeWords } from '../fixtures/rude-server.ts'
import { until } from '../support/until.ts'
import { cleanUp, Gateway, type Json } from './support/gateway.ts'
import { RawClient } from './support/raw-client.ts'
import { closeServers, RawServer, sendJson } from './support/raw-server.ts'

after(async () => {
  await cleanUp()
  closeServers()
})

const rude = fileURLToPath(new URL('../fixtures/rude-server.js', import.meta.url))

/** Servers of all sorts, with rude texts wherever possible. */
async function rudeServers() {
  const remote = await RawServer.start(
    ({ message }, response) => {
      const { id, method } = message
      const error = { code: -32000, message: rudeWords }
      if (method === 'initialize' || method === 'tools/list' || id === undefined) return false
      return sendJson(response, JSON.stringify({ jsonrpc: '2.0', id, error }))
    },
    ['good', ...rudeNames],
  )
  const refusing = await RawServer.start(({ message }, response) =>
    sendJson(
      response,
      JSON.stringify({ jsonrpc: '2.0', id: message.id, error: { code: 1, message: rudeWords } }),
    ),
  )
  const untyped = await RawServer.start((_, response) => {
    response.writeHead(200, 'pwned \u009b31m', { 'content-type': 'text/pwned\u009b31m' }).end(rudeWords)
  })
  return {
    local: { command: process.execPath, args: [rude] },
    refuses: { command: process.execPath, args: [rude, 'refuse'] },
    remote: { url: remote.url },
    refusing: { url: refusing.url },
    untyped: { url: untyped.url },
  }
}

/** Repeats the agents' actions and asks for every text that quotes others. */
async function provoke(gateway: Gateway): Promise<string[]> {
  await gateway.waitFor('up', 'local', 'remote')
  await gateway.waitFor('down', 'refuses', 'refusing', 'untyped')
  const client = await RawClient.open(gateway.mcp(), { headers: { 'x-tenant': '\u009b31m' } })
  for (const name of [
    'local__fail',
    'remote__good',
    'refuses__x',
    'untyped__x',
    rudeWords,
    `local__${rudeWords}`,
  ])
    await client.request('tools/call', { name }).catch(() => undefined)
  const info = {
    protocolVersion: '2025-11-25',
    capabilities: {},
    clientInfo: { name: rudeWords, version: rudeWords },
  }
  await client.post({ jsonrpc: '2.0', id: 1, method: 'initialize', params: info })
  const said: string[] = []
  for (const path of [
    'servers',
    'servers/local',
    'servers/remote',
    'servers/refuses',
    'sessions',
    'mesh',
    'chaos',
  ])
    said.push(await (await fetch(`${gateway.control}/admin/${path}`)).text())
  for (const path of [`/admin/servers/${encodeURIComponent(rudeWords.slice(0, 60))}`, '/chaos/status'])
    said.push(await (await fetch(gateway.control + path)).text())
  said.push(...(await (await fetch(`${gateway.control}/metrics`)).text()).split('\n'))
  return said
}

/** The log's own colours; no test server sends one alone. */
const COLOURS = /\u001b\[(0|1|2|22|30|31|32|33|34|35|36|37|39|90)m/g

for (const terminal of [false, true]) {
  const how = terminal ? 'on a terminal' : 'as JSON'
  test(`no text of servers and agents reaches a terminal unescaped, or forges a line of the log (${how})`, async () => {
    const isTTY = ['--import', 'data:text/javascript,process.stdout.isTTY=true']
    const options = { nodeArgs: terminal ? isTTY : [], args: ['--log-level', 'trace'] }
    const servers = await rudeServers()
    const gateway = await Gateway.start({ servers }, options)
    const said = await provoke(gateway)
    await until('the banner is printed', () =>
      gateway.program.lines.some((line) => line.includes('Breakwater is up')),
    )
    gateway.program.signal('SIGTERM')
    await gateway.program.ended
    const { lines } = gateway.program
    assert.ok(lines.filter((line) => line.includes('PWNED')).length > 3, lines.join('\n'))
    for (const line of [...lines, ...said].map((text) => text.replace(COLOURS, ''))) {
      assert.equal(hasUnprintable(line), false, JSON.stringify(line))
      assert.doesNotMatch(line, /^\s*(\[00:00|\{"level":30,"msg":"PWNED|PWNED)/)
    }
  })
}

test('entries with rude names are not listed, are counted and shown to operators, and cannot be used', async () => {
  const servers = await rudeServers()
  const gateway = await Gateway.start({ servers })
  await gateway.waitFor('up', 'local', 'remote')
  const everywhere = await RawClient.open(gateway.mcp())
  const alone = await RawClient.open(gateway.mcp('local'))
  const lists = [
    ['tools/list', 'tools', 'name', 'local__good'],
    ['prompts/list', 'prompts', 'name', 'local__good'],
    ['resources/list', 'resources', 'uri', 'breakwater://local/good'],
  ] as const
  for (const [method, key, name, exposed] of lists) {
    const shown = async (client: RawClient) => {
      const { result } = (await client.request(method)) as {
        result: Record<string, Record<string, string>[]>
      }
      return result[key]?.map((entry) => entry[name] ?? '') ?? []
    }
    const isLong = (entry: string) => entry.includes('long_')
    assert.deepEqual(
      (await shown(alone)).filter((entry) => !isLong(entry)),
      ['good'],
    )
    assert.ok((await shown(everywhere)).includes(exposed))
    for (const client of [alone, everywhere]) {
      const names = await shown(client)
      assert.ok(!names.some(hasUnprintable), method)
      // A URI may be longer than a name.
      assert.equal(names.some(isLong), key === 'resources', method)
    }
  }
  for (const name of rudeNames) {
    for (const [client, prefix, uri] of [
      [alone, '', ''],
      [everywhere, 'local__', 'breakwater://local/'],
    ] as const) {
      const asked = [
        client.request('tools/call', { name: prefix + name }),
        client.request('prompts/get', { name: prefix + name }),
        ...(hasUnprintable(name) ? [client.request('resources/read', { uri: uri + name })] : []),
      ]
      for (const { error } of await Promise.all(asked))
        assert.equal((error as Json | undefined)?.code, -32602, name)
    }
  }
  assert.equal(await alone.say('good'), 'called')

  const { unlisted, unlistedCount } = (await gateway.server('local')) as {
    unlisted: { list: string; name: string; why: string }[]
    unlistedCount: number
  }
  const expected = rudeNames.length * 3 - 1
  assert.deepEqual([unlisted.length, unlistedCount], [expected, expected])
  assert.ok(unlisted.some(({ list, name }) => list === 'tools' && name === 'esc\\u001b[31m'))
  assert.equal(
    await gateway.metric('breakwater_server_unlisted', 'server="local",list="tools"'),
    rudeNames.length,
  )
  assert.equal(
    await gateway.metric('breakwater_server_unlisted', 'server="local",list="resourceTemplates"'),
    0,
  )
  await gateway.post('/admin/reload')
  const told = gateway.log.filter(
    ({ msg, server }) => server === 'local' && String(msg).startsWith('not shown'),
  )
  assert.equal(told.length, expected)
})

test("name limits apply to names as agents see them, with and without the server's prefix", async () => {
  const fits = 't'.repeat(128 - 'edge__'.length)
  const bare = 't'.repeat(128)
  const names = ['', 'plain', fits, `${fits}t`, bare]
  const uris = ['', 'plain', 'u'.repeat(8_192 - 'breakwater://edge/'.length), 'u'.repeat(8_192)]
  const lists: Record<string, Json> = {
    'tools/list': { tools: names.map((name) => ({ name, inputSchema: { type: 'object' } })) },
    'prompts/list': { prompts: names.map((name) => ({ name })) },
    'resources/list': { resources: uris.map((uri) => ({ uri, name: 'r' })) },
  }
  const edge = await RawServer.start(({ message }, response) => {
    const { id, method, params } = message as { id?: number; method: string; params?: Json }
    const capabilities = { tools: {}, prompts: {}, resources: {} }
    const { protocolVersion } = params ?? {}
    const serverInfo = { name: 'edge', version: '1' }
    const results: Record<string, Json> = {
      ...lists,
      initialize: { protocolVersion, capabilities, serverInfo },
      'tools/call': { content: [{ type: 'text', text: 'called' }] },
    }
    if (id === undefined || results[method] === undefined) return false
    sendJson(response, JSON.stringify({ jsonrpc: '2.0', id, result: results[method] }))
    return true
  })
  const gateway = await Gateway.start({ servers: { edge: { url: edge.url, era: 'legacy' } } })
  await gateway.waitFor('up', 'edge')
  const aggregate = await RawClient.open(gateway.mcp())
  const alone = await RawClient.open(gateway.mcp('edge'))
  const listed = async (client: RawClient, method: string, key: 'name' | 'uri') => {
    const { result } = (await client.request(method)) as { result: Record<string, Json[]> }
    const [list = []] = Object.values(result)
    return list.map((entry) => String(entry[key]))
  }
  assert.deepEqual(await listed(aggregate, 'prompts/list', 'name'), ['edge__plain', `edge__${fits}`])
  const [plain, ...shortened] = await listed(aggregate, 'tools/list', 'name')
  assert.equal(plain, 'edge__plain')
  assert.equal(new Set(shortened).size, 3)
  for (const name of shortened) assert.match(name, /^edge__t{49}_[0-9a-f]{8}$/)
  for (const method of ['tools/list', 'prompts/list'])
    assert.deepEqual(await listed(alone, method, 'name'), names.slice(1), method)
  assert.deepEqual(
    await listed(aggregate, 'resources/list', 'uri'),
    uris.slice(1, 3).map((uri) => `breakwater://edge/${uri}`),
  )
  assert.deepEqual(await listed(alone, 'resources/list', 'uri'), uris.slice(1))

  const codeOf = async (client: RawClient, method: string, params: Json) =>
    ((await client.request(method, params)).error as Json | undefined)?.code
  for (const name of ['edge__', `edge__${fits}t`, `edge__${bare}`])
    assert.equal(await codeOf(aggregate, 'prompts/get', { name }), -32602, name)
  assert.equal(await codeOf(aggregate, 'tools/call', { name: 'edge__' }), -32602)
  assert.equal(await codeOf(alone, 'tools/call', { name: '' }), -32602)
  assert.equal(await codeOf(aggregate, 'resources/read', { uri: 'breakwater://edge/' }), -32602)
  assert.equal(await alone.say(bare), 'called')
  const { result } = (await aggregate.request('tools/list')) as { result: { tools: Json[] } }
  const { tools } = (await gateway.server('edge')) as { tools: { key: string; exposed: string }[] }
  assert.deepEqual(
    result.tools.map(({ name, _meta }) => [name, (_meta as Json | undefined)?.['dev.breakwater/name']]),
    [
      ['edge__plain', undefined],
      ...shortened.map((name, index) => [name, `edge__${[fits, `${fits}t`, bare][index]}`]),
    ],
  )
  assert.deepEqual(
    tools.map(({ key, exposed }) => [key, exposed]),
    [plain, ...shortened].map((name, index) => [['plain', fits, `${fits}t`, bare][index], name]),
  )

  // The full name works as well as the shortened name.
  assert.equal(await aggregate.say(`edge__${fits}`), 'called')
  for (const name of shortened) assert.equal(await aggregate.say(name), 'called')
  assert.deepEqual(
    edge.of('tools/call').map(({ message }) => (message.params as Json).name),
    [bare, fits, fits, `${fits}t`, bare],
  )

  const { unlisted, unlistedCount } = (await gateway.server('edge')) as {
    unlisted: { list: string; name: string; why: string; where: string }[]
    unlistedCount: number
  }
  assert.equal(unlistedCount, 1 + 3 + 2)
  assert.deepEqual(
    unlisted.filter(({ list }) => list === 'tools').map(({ why, where }) => [where, why]),
    [['everywhere', 'is empty']],
  )
  assert.equal(await gateway.metric('breakwater_server_unlisted', 'server="edge",list="tools"'), 1)
})
