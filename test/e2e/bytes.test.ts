import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { until } from '../support/until.ts'
import { cleanUp, Gateway } from './support/gateway.ts'
import { headersOf, ModernClient } from './support/modern-client.ts'
import { post, RawClient } from './support/raw-client.ts'
import { closeServers, RawServer, sendJson } from './support/raw-server.ts'

/** Odd but valid: spaces, escapes, numbers beyond a double, unknown fields. */
const oddRequest =
  '{ "big": 12345678901234567890, "exact": 1.10, "exp": 1E400, "e": "\\u00e9\\/",' +
  ' "__proto__": {"x": null}, "deep": [[[{}]]] }'

/** Duplicate keys, allowed in a server's message only: the gateway refuses an agent's. */
const odd = oddRequest.replace('{ ', '{ "twice": 1, "twice": 2, ')

const result = `{ "content": [ {"type":"text","text":"ok","unknown":${odd}} ], "resultType":"new", "x-extra":${odd} }`

const tool = `{ "name":"odd", "inputSchema":{"type":"object", "x":${odd}}, "annotations": {"unknownHint":true}, "x-new":${odd} }`

let gateway: Gateway
let server: RawServer
/** Answers the call of `held`. */
let release: (() => void) | undefined

before(async () => {
  server = await RawServer.start(({ message, text }, response) => {
    // The exact text of the id: it may be a number beyond a double.
    const id = /"id"\s*:\s*("[^"]*"|[^,\s}]+)/.exec(text)?.[1] ?? 'null'
    const answers: Readonly<Record<string, string>> = {
      'tools/list': `{"tools":[${tool},{"name":"held","inputSchema":{"type":"object"}}]}`,
      'tools/call': result,
      'x/unknown': odd,
    }
    const answer = answers[String(message.method)]
    if (answer === undefined) return false
    const send = () =>
      sendJson(response, `{ "jsonrpc": "2.0", "result": ${answer}, "id": ${id}, "x-outer": [1.0] }`)
    if (text.includes('"name":"held"')) release = send
    else send()
    return true
  })
  gateway = await Gateway.start({ servers: { raw: { url: server.url } } })
  await gateway.waitFor('up', 'raw')
})
after(async () => {
  await cleanUp()
  closeServers()
})

const call = (name: string, id: string) =>
  ` {"id" : ${id}, "jsonrpc":"2.0" ,"x-top":${oddRequest}, "method":"tools/call",\n` +
  ` "params": { "arguments": ${oddRequest}, "_meta": {"x/y": ${oddRequest}}, "name":"${name}", "future": ${oddRequest} } } `

test('on the endpoint of one server a call and its answer pass byte by byte', async () => {
  const client = await RawClient.open(gateway.mcp('raw'))
  const text = call('odd', '"a"')
  const reply = await client.post(text)
  assert.equal(server.of('tools/call').at(-1)?.text, text)
  assert.equal(reply.text, `{ "jsonrpc": "2.0", "result": ${result}, "id": "a", "x-outer": [1.0] }`)
})

test('among others only the name of the tool is exchanged', async () => {
  const client = await RawClient.open(gateway.mcp())
  const reply = await client.post(call('raw__odd', '"b"'))
  assert.equal(server.of('tools/call').at(-1)?.text, call('odd', '"b"'))
  assert.equal(reply.text, `{ "jsonrpc": "2.0", "result": ${result}, "id": "b", "x-outer": [1.0] }`)
})

test('lists keep every byte of a tool but its name', async () => {
  const all = await RawClient.open(gateway.mcp())
  const one = await RawClient.open(gateway.mcp('raw'))
  const list = { jsonrpc: '2.0', id: 1, method: 'tools/list' }
  assert.ok((await all.post(list)).text.includes(tool.replace('"odd"', '"raw__odd"')))
  assert.ok((await one.post(list)).text.includes(tool))
})

/** Too large for a double, or too precise. */
const exactIds = [
  '9007199254740993',
  '18446744073709551615',
  '-12345678901234567890',
  '0.10000000000000000001',
]

const idIn = (text: string) => /"id":\s*([^,}\s]+)/.exec(text)?.[1]

for (const id of exactIds)
  test(`the id ${id} comes back digit by digit, whoever answers`, async () => {
    const clientInfo = { name: 'exact', version: '1' }
    const hello = JSON.stringify({ protocolVersion: '2025-06-18', capabilities: {}, clientInfo })
    const request = (method: string, params = '{}') =>
      `{"jsonrpc":"2.0","method":"${method}","params":${params},"id":${id}}`
    assert.equal(idIn((await post(gateway.mcp(), request('initialize', hello))).text), id)
    for (const server of [undefined, 'raw']) {
      const client = await RawClient.open(gateway.mcp(server))
      for (const method of ['ping', 'tools/list', 'no/such', 'prompts/get'])
        assert.equal(idIn((await client.post(request(method))).text), id, method)
      const twice = request('ping').replace('{', '{"x":{"y":1,"y":2},')
      assert.equal(idIn((await client.post(twice)).text), id, 'the refusal has the exact id')
    }
    const batching = await RawClient.open(gateway.mcp(), { version: '2025-03-26' })
    assert.equal(idIn((await batching.post(`[${request('ping')}]`)).text), id)
    const modern = new ModernClient(gateway.mcp())
    for (const method of ['server/discover', 'tools/list', 'no/such']) {
      const body = JSON.stringify({ jsonrpc: '2.0', id: 'ID', method, params: { _meta: modern.meta } })
      const headers = headersOf({ method })
      assert.equal(idIn((await post(gateway.mcp(), body.replace('"ID"', id), headers)).text), id, method)
    }
  })

test('the gateway keeps two calls apart whose ids are the same double', async () => {
  const client = await RawClient.open(gateway.mcp())
  const held = client.post(call('raw__held', '9007199254740992'))
  await until('the first call is under way', () => release !== undefined)
  const other = await client.post(call('raw__odd', '9007199254740993'))
  assert.ok(other.text.includes('"result"') && idIn(other.text) === '9007199254740993', other.text)
  release?.()
  assert.equal(idIn((await held).text), '9007199254740992')
})

test('the endpoint of one server passes unknown methods', async () => {
  const client = await RawClient.open(gateway.mcp('raw'))
  const text = `{"jsonrpc":"2.0","id":3,"method":"x/unknown","params":${oddRequest}}`
  const reply = await client.post(text)
  assert.equal(server.of('x/unknown').at(-1)?.text, text)
  assert.ok(reply.text.includes(`"result": ${odd}`))
  const note = `{"jsonrpc":"2.0","method":"notifications/x-unknown","params":${oddRequest}}`
  assert.equal((await client.post(note)).status, 202)
  await until('the server gets the notification', () => server.of('notifications/x-unknown').length > 0)
  assert.equal(server.of('notifications/x-unknown').at(-1)?.text, note)
})

test('ids of every kind come back as they were', async () => {
  const client = await RawClient.open(gateway.mcp('raw'))
  for (const id of ['0', '-1', '1.5', '"0"', '""', '"ü\\u0000\\n"', '9007199254740993'])
    assert.match(
      (await client.post(call('odd', id))).text,
      new RegExp(`"id": ${id.replaceAll('\\', '\\\\')},`),
    )
})
