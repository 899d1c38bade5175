import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { cleanUp, Gateway, type Json } from '../e2e/support/gateway.ts'
import { closeServers, RawServer } from '../e2e/support/raw-server.ts'
import { WireAgent } from './support/wire-agent.ts'

const long = 'Zürich 日本語 \\n \\u00e9 \\ud83d\\ude00 \\"quoted\\" 😀 '.repeat(5_000)
const rows = JSON.stringify(
  Array.from({ length: 5_000 }, (_, id) => ({ id, name: `customer ${id}`, ok: true })),
)
const block = `{"type":"text","text":"${long}"}`

/** Returns the server's reply to the request with this id, by tool. */
const good: Readonly<Record<string, (id: unknown) => string>> = {
  text: (id) => `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":{"content":[${block}]}}`,
  spaced: (id) =>
    `\n{ "result" : {\t"content": [ ${block} , ${block} ], "isError" : false },\r\n"id" :${JSON.stringify(id)}, "jsonrpc":"2.0" }\n `,
  structured: (id) =>
    `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":{"content":[${block}],"structuredContent":{"rows":${rows},"note":"${long}"}}}`,
  failing: (id) =>
    `{"id":${JSON.stringify(id)},"jsonrpc":"2.0","result":{"isError":true,"content":[${block}]}}`,
  error: (id) =>
    `{"id":${JSON.stringify(id)},"jsonrpc":"2.0","error":{"code":-32603,"message":"m","data":"${long}"}}`,
}

/** Invalid replies, with words of the error an agent gets. */
const bad: Readonly<Record<string, readonly [(id: unknown) => string, string]>> = {
  control: [(id) => good.text!(id).replace('Zürich', 'Zü\u0001rich'), 'not a JSON-RPC response'],
  escape: [(id) => good.text!(id).replace('\\n', '\\x'), 'not a JSON-RPC response'],
  unfinished: [(id) => good.text!(id).slice(0, -1), 'not a JSON-RPC response'],
  other: [() => good.text!('another'), 'different request'],
  plain: [() => `{"text":"${long}"}`, 'not a JSON-RPC response'],
  list: [() => `["${long}"]`, 'not a JSON-RPC response'],
  many: [
    (id) => good.structured!(id).replace(rows, `[${'1,'.repeat(100_001)}1]`),
    'the reply has more than 100000 values',
  ],
}

const names = [...Object.keys(good), ...Object.keys(bad)]

let said = Buffer.alloc(0)
let gateway: Gateway

before(async () => {
  const server = await RawServer.start(({ message: { id, method, params } }, response) => {
    if (method !== 'tools/call') return false
    const { name } = params as Json as { name: string }
    said = Buffer.from((good[name] ?? bad[name]![0])(id))
    response.writeHead(200, { 'content-type': 'application/json' })
    // Cut anywhere: also inside characters, and with a single byte at the end.
    for (let at = 0; at < said.length - 1; at += 50_021)
      response.write(said.subarray(at, Math.min(at + 50_021, said.length - 1)))
    response.end(said.subarray(-1))
    return true
  }, names)
  gateway = await Gateway.start({
    servers: { one: { url: server.url, era: 'legacy' } },
    policies: { defaults: { retry: false, gate: false, overdue: false } },
  })
  await gateway.waitFor('up', 'one')
})

after(async () => {
  await cleanUp()
  closeServers()
})

for (const [place, prefix] of [
  ['one', ''],
  [undefined, 'one__'],
] as const)
  test(`a large reply comes to a legacy agent of ${place ?? 'all servers'} byte for byte`, async () => {
    const agent = new WireAgent(gateway.mcp(place), 'legacy')
    await agent.open()
    for (const name of Object.keys(good)) {
      const exchange = agent.call(prefix + name)
      await exchange.over
      assert.equal(exchange.end, 'whole')
      assert.equal(exchange.header('content-length'), String(said.length))
      assert.ok(exchange.body.equals(said), `${name}: ${exchange.body.length} and ${said.length} bytes`)
    }
  })

test('a large reply comes to a modern agent with all that it says', async () => {
  const agent = new WireAgent(gateway.mcp('one'), 'modern')
  for (const name of Object.keys(good)) {
    const exchange = agent.call(name)
    await exchange.over
    const { result, error } = JSON.parse(said.toString()) as { result?: Json; error?: Json }
    assert.deepEqual(exchange.error, error)
    assert.deepEqual(exchange.result, result && { resultType: 'complete', ...result })
  }
})

for (const era of ['legacy', 'modern'] as const)
  test(`an invalid large reply becomes an error with its reason for a ${era} agent`, async () => {
    const agent = new WireAgent(gateway.mcp('one'), era)
    await agent.open()
    for (const [name, [, words]] of Object.entries(bad)) {
      const exchange = agent.call(name)
      await exchange.over
      assert.equal(exchange.reason, 'bad_reply', name)
      assert.ok(exchange.error?.message.includes(words), exchange.error?.message)
    }
  })
