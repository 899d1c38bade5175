import assert from 'node:assert/strict'
import { createServer, type ServerResponse } from 'node:http'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { text as readText } from 'node:stream/consumers'
import { after, before, test } from 'node:test'
import { cleanUp, Gateway, type Json } from '../e2e/support/gateway.ts'
import { type RawServer, startRawServer } from '../fixtures/modern-extras/raw.ts'
import { orBrokenOff } from '../support/broken-off.ts'
import { postModern } from './support/modern-poster.ts'

const schema =
  '{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","$defs":{"a":{"$anchor":"A","const":1.0}},' +
  ' "if":{"required":["x"]},"then":{"minProperties":2},"properties":{"big":{"maximum":98765432109876543210}}, "z":"\\u00e9"}'

const tool = `{"x-first":1.0,"name":"echo","inputSchema":${schema},"annotations":{"readOnlyHint":true,"x-hint":2.50},"execution":{"later":[ ]}}`

const answer =
  '{"x-before":1.0,"content":[{"type":"hologram","depth":3.0},{"type":"text","text":"\\u00e9"}], "structuredContent":{"n":98765432109876543210},"_meta":{"x":1.0}}'

/** A handmade legacy server, with texts a careless gateway would change. */
const legacy = createServer((request, response) => {
  const taking = readText(request).then((text) => {
    if (request.method !== 'POST') return void response.writeHead(405).end()
    const { id, method } = JSON.parse(text) as { id?: unknown; method: string }
    if (id === undefined) return void response.writeHead(202).end()
    reply(response, JSON.stringify(id), results[method] ?? answer)
  })
  orBrokenOff(taking)
})

const results: Readonly<Record<string, string>> = {
  initialize:
    '{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"x-capability":{"deep":[1.0]}},"serverInfo":{"name":"raw","version":"1"}}',
  'tools/list': `{"tools":[${tool}],"x-list":1.0}`,
}

function reply(response: ServerResponse, id: string, result: string): void {
  response.writeHead(200, { 'content-type': 'application/json' })
  response.end(`{"jsonrpc":"2.0","id":${id},"result":${result}}`)
}

let modern: RawServer
let gateway: Gateway

before(async () => {
  modern = await startRawServer()
  legacy.listen(0, '127.0.0.1')
  await once(legacy, 'listening')
  const { port } = legacy.address() as AddressInfo
  gateway = await Gateway.start({
    servers: { legacy: { url: `http://127.0.0.1:${port}/mcp` }, modern: { url: modern.url } },
  })
  await gateway.waitFor('up', 'legacy', 'modern')
})
after(async () => {
  await cleanUp()
  legacy.closeAllConnections()
  legacy.close()
  await modern.close()
})

test("a legacy server's tools reach a modern client byte by byte", async () => {
  const { status, text } = await postModern(gateway.mcp('legacy'), 'tools/list')
  assert.equal(status, 200)
  assert.ok(text.includes(tool), text)
  assert.ok(text.includes('"x-list":1.0'), text)
})

test("a legacy server's tools keep their bytes among others, but for the name", async () => {
  const { text } = await postModern(gateway.mcp(), 'tools/list')
  assert.ok(text.includes(tool.replace('"echo"', '"legacy__echo"')), text)
})

test("a legacy server's results get what the modern era demands, and lose nothing", async () => {
  const { text, messages } = await postModern(gateway.mcp('legacy'), 'tools/call', { name: 'echo' })
  const { resultType } = (messages[0]?.result ?? {}) as Json
  assert.equal(resultType, 'complete')
  assert.ok(text.includes(answer.slice(1)), text)
})

test("a legacy server's capabilities that nobody knows are shown to a modern client", async () => {
  const { messages } = await postModern(gateway.mcp('legacy'), 'server/discover')
  const { capabilities } = messages[0]?.result as { capabilities: Json }
  assert.deepEqual(capabilities, { tools: {}, 'x-capability': { deep: [1] } })
})

test("a modern server's tools and results reach a modern client byte by byte", async () => {
  const odd = '"z":1.0, "big":98765432109876543210,"\\u0061b":"\\u00e9"'
  const list = await postModern(gateway.mcp('modern'), 'tools/list')
  assert.ok(list.text.includes('{"name":"echo","x-unknown":1.0,"inputSchema":{"type":"object"}}'), list.text)
  assert.ok(list.text.includes(odd), list.text)
  const call = await postModern(gateway.mcp('modern'), 'tools/call', { name: 'echo' })
  assert.ok(call.text.includes(odd), call.text)
})

test("a modern client's messages reach a modern server with all unknown fields", async () => {
  const params = { name: 'echo', arguments: { deep: [{ x: null }] }, 'x-params': 1, _meta: { 'x/meta': [1] } }
  await postModern(gateway.mcp('modern'), 'tools/call', params)
  const came = JSON.parse(String(modern.requests.at(-1)?.body)) as { params: Json & { _meta: Json } }
  assert.deepEqual(came.params.arguments, params.arguments)
  assert.equal(came.params['x-params'], 1)
  assert.deepEqual(came.params._meta['x/meta'], [1])
})
