import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { cleanUp, Gateway, type Json } from './support/gateway.ts'
import { ModernClient } from './support/modern-client.ts'
import { RawClient } from './support/raw-client.ts'
import { closeServers, RawServer, sendJson } from './support/raw-server.ts'

const HEADER = 'x-breakwater-attempt'

let server: RawServer
let gateway: Gateway
/** How the next calls end before their answer, in order. */
const failures: ('reset' | '503' | 'rpc')[] = []

before(async () => {
  server = await RawServer.start(
    ({ message }, response) => {
      if (message.method !== 'tools/call') return false
      const { id } = message
      const failure = failures.shift()
      if (failure === 'reset') response.destroy()
      else if (failure === '503') response.writeHead(503).end()
      else if (failure === 'rpc')
        sendJson(response, JSON.stringify({ jsonrpc: '2.0', id, error: { code: -32603, message: 'no' } }))
      else
        sendJson(
          response,
          `{ "result":{"content":[],"x":1.0}, "id" : ${JSON.stringify(id)}, "jsonrpc":"2.0"}`,
        )
      return true
    },
    ['read', 'write'],
  )
  gateway = await Gateway.start({
    servers: { raw: { url: server.url } },
    policies: {
      defaults: { retry: { base: 1 }, breaker: false },
      overrides: [{ match: { server: 'raw', tool: 'read' }, effect: 'read_only' }],
    },
  })
  await gateway.waitFor('up', 'raw')
})
after(async () => {
  await cleanUp()
  closeServers()
})

const call = (id: string, tool = 'read') =>
  `{"jsonrpc":"2.0", "id": ${id}, "method":"tools/call","params":{"name":"${tool}","arguments":{"x":1.0}}}`

for (const failure of ['reset', '503', 'rpc'] as const)
  test(`a read that ends with "${failure}" is sent again under a new id, and answered under that of the agent`, async () => {
    const client = await RawClient.open(gateway.mcp('raw'))
    for (const id of ['7', '-1', '"seven"', '"7"', '""', '"\\u00e9"']) {
      const before = server.of('tools/call').length
      failures.push(failure)
      const { text } = await client.post(call(id))
      assert.equal(text, `{ "result":{"content":[],"x":1.0}, "id" : ${id}, "jsonrpc":"2.0"}`)
      const [first, second, ...more] = server.of('tools/call').slice(before)
      assert.deepEqual(more, [])
      assert.equal(first?.text, call(id))
      assert.equal(first?.headers[HEADER], undefined)
      assert.notEqual(second?.message.id, first?.message.id)
      assert.equal(second?.text, call(id).replace(id, JSON.stringify(second?.message.id)))
      assert.equal(second?.headers[HEADER], '2')
    }
  })

test('an id that no double holds comes back digit by digit', async () => {
  for (const url of [gateway.mcp('raw'), gateway.mcp()]) {
    const client = await RawClient.open(url)
    failures.push('reset')
    const { text } = await client.post(call('9007199254740993', url === gateway.mcp() ? 'raw__read' : 'read'))
    assert.match(text, /"id" : 9007199254740993,/)
  }
})

test('each try has an id and a number of its own', async () => {
  const client = await RawClient.open(gateway.mcp('raw'))
  const before = server.of('tools/call').length
  failures.push('503', 'reset')
  assert.ok('result' in (await client.call('read')))
  const tries = server.of('tools/call').slice(before)
  assert.equal(new Set(tries.map(({ message }) => message.id)).size, 3)
  assert.deepEqual(
    tries.map(({ headers }) => headers[HEADER]),
    [undefined, '2', '3'],
  )
})

test('a client of the modern era has its id back as well', async () => {
  const client = new ModernClient(gateway.mcp('raw'))
  const before = server.of('tools/call').length
  failures.push('reset')
  const request = { ...client.request('tools/call', { name: 'read', arguments: {} }), id: 'modern' }
  const { messages } = await client.post(request)
  assert.equal(messages.at(-1)?.id, 'modern')
  assert.ok('result' in (messages.at(-1) as Json))
  const ids = server
    .of('tools/call')
    .slice(before)
    .map(({ message }) => message.id)
  assert.equal(new Set(ids).size, 2)
})

test("an agent's own second try is not retried a third time", async () => {
  const client = await RawClient.open(gateway.mcp('raw'))
  const before = server.of('tools/call').length
  failures.push('503')
  const { messages } = await client.post(call('1'), { [HEADER]: '2' })
  assert.equal((messages[0]?.error as { data: Json }).data.reason, 'upstream_status')
  assert.equal(server.of('tools/call').length, before + 1)
  failures.length = 0
})

test('a write goes out once, whatever the reply', async () => {
  const client = await RawClient.open(gateway.mcp('raw'))
  for (const failure of ['reset', '503', 'rpc'] as const) {
    const before = server.of('tools/call').length
    failures.push(failure)
    assert.ok('error' in (await client.call('write')))
    assert.equal(server.of('tools/call').length, before + 1, failure)
  }
})
