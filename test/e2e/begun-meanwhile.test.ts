import assert from 'node:assert/strict'
import type { ServerResponse } from 'node:http'
import { after, test } from 'node:test'
import { until } from '../support/until.ts'
import { cleanUp, Gateway, type Json } from './support/gateway.ts'
import { RawClient } from './support/raw-client.ts'
import { closeServers, RawServer, type Seen, sendJson } from './support/raw-server.ts'

after(async () => {
  await cleanUp()
  closeServers()
})

/** A server that holds its answers to requests `isHeld` matches, until `release`. */
async function holding(isHeld: (seen: Seen) => boolean) {
  const held: { seen: Seen; response: ServerResponse }[] = []
  const server = await RawServer.start(
    (seen, response) => isHeld(seen) && void held.push({ seen, response }),
    ['write'],
  )
  const release = (result: Json) => {
    for (const { seen, response } of held.splice(0))
      sendJson(response, JSON.stringify({ jsonrpc: '2.0', id: seen.message.id, result }))
  }
  return { url: server.url, held, release }
}

const agentsHandshake = ({ message: { method, params } }: Seen) =>
  method === 'initialize' &&
  ((params as { clientInfo?: { name: string } }).clientInfo?.name ?? '').startsWith('raw')

const welcome = { protocolVersion: '2025-11-25', capabilities: {}, serverInfo: { name: 'x', version: '1' } }

test('a session whose server is edited during the handshake begins', async () => {
  const { url, held, release } = await holding(agentsHandshake)
  const parts = (headers: Json) => ({ servers: { a: { url, headers } } })
  const gateway = await Gateway.start(parts({}))
  await gateway.waitFor('up', 'a')
  const opening = RawClient.open(gateway.mcp('a'))
  await until('the handshake is under way', () => held.length === 1)
  await gateway.reconfigure(parts({ 'x-new': '1' }))
  assert.equal((await gateway.post('/admin/reload')).status, 200)
  release(welcome)
  const client = await opening
  assert.notEqual(client.session, '', JSON.stringify(client.welcome))
})

test('a session whose server is removed during the handshake does not begin, though a call keeps the old config', async () => {
  const { url, held, release } = await holding(
    (seen) => agentsHandshake(seen) || seen.message.method === 'tools/call',
  )
  const entry = { url }
  const gateway = await Gateway.start({ servers: { a: entry } })
  await gateway.waitFor('up', 'a')
  const opened = RawClient.open(gateway.mcp('a'))
  await until('the first handshake is under way', () => held.length === 1)
  release(welcome)
  const call = (await opened).call('write')
  await until('a call is under way', () => held.length === 1)
  const opening = RawClient.open(gateway.mcp('a'))
  await until('the second handshake is under way', () => held.length === 2)
  await gateway.reconfigure({ servers: {} })
  assert.equal((await gateway.post('/admin/reload')).status, 200)
  release({ ...welcome, content: [] })
  const client = await opening
  assert.equal(client.session, '')
  assert.match(JSON.stringify(client.welcome), /was removed from the config meanwhile/)
  assert.notEqual((await call).result, undefined)
  const { body } = await gateway.admin<{ sessions: unknown[] }>('/admin/sessions')
  assert.deepEqual(body.sessions, [])
})

test('a run that another session has joined outlives the session that began it', async () => {
  const { url, held, release } = await holding(({ message }) => message.method === 'tools/call')
  const gateway = await Gateway.start({ servers: { a: { url } } })
  await gateway.waitFor('up', 'a')
  const [first, second] = [await RawClient.open(gateway.mcp('a')), await RawClient.open(gateway.mcp('a'))]
  const params = { name: 'write', arguments: {}, _meta: { 'dev.breakwater/idempotency-key': 'one' } }
  const began = first.request('tools/call', params)
  await until('the call runs', () => held.length === 1)
  const joined = second.request('tools/call', params)
  await gateway.waitForCalls(2)
  await first.leave()
  assert.notEqual((await began).error, undefined)
  release({ content: [{ type: 'text', text: 'done' }] })
  assert.deepEqual((await joined).result, { content: [{ type: 'text', text: 'done' }] })
})

/** Answers a call with a question, as an event, and with `result` after the answer. */
async function asking() {
  const calls: { id: unknown; response: ServerResponse }[] = []
  const server = await RawServer.start(
    ({ message }, response) => {
      const { method, id } = message
      if (method === 'tools/call') {
        response.writeHead(200, { 'content-type': 'text/event-stream' })
        const params = { message: 'Go on?', requestedSchema: { type: 'object', properties: {} } }
        const question = { jsonrpc: '2.0', id: 'question', method: 'elicitation/create', params }
        response.write(`data: ${JSON.stringify(question)}\n\n`)
        calls.push({ id, response })
        return true
      }
      if (method !== undefined || id !== 'question') return false
      response.writeHead(202).end()
      for (const call of calls.splice(0)) {
        const answer = {
          jsonrpc: '2.0',
          id: call.id,
          result: { content: [], _meta: { got: message.result } },
        }
        call.response.end(`data: ${JSON.stringify(answer)}\n\n`)
      }
      return true
    },
    ['write'],
  )
  return server.url
}

for (const taken of ['answered', 'cancelled'] as const)
  test(`a call whose server is removed while its agent is asked can be ${taken}, and its session ends with it`, async () => {
    const url = await asking()
    const gateway = await Gateway.start({ servers: { a: { url } } })
    await gateway.waitFor('up', 'a')
    const client = await RawClient.open(gateway.mcp('a'), { capabilities: { elicitation: {} } })
    const stream = await client.stream({
      jsonrpc: '2.0',
      id: 'call',
      method: 'tools/call',
      params: { name: 'write' },
    })
    const { id } = await stream.next('its agent is asked', ({ method }) => method === 'elicitation/create')
    await gateway.reconfigure({ servers: {} })
    assert.equal((await gateway.post('/admin/reload')).status, 200)
    assert.equal((await client.post({ jsonrpc: '2.0', id: 2, method: 'tools/list' })).status, 404)
    const accepted = { action: 'accept', content: {} }
    const said =
      taken === 'answered'
        ? { jsonrpc: '2.0', id, result: accepted }
        : { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 'call' } }
    assert.equal((await client.post(said)).status, 202)
    await until('the call is over', () => stream.ended)
    const answer = stream.messages().find((message) => message.id === 'call' && !('method' in message))
    if (taken === 'answered') assert.deepEqual((answer?.result as Json | undefined)?._meta, { got: accepted })
    await until('the session of the call is gone', async () => {
      const { body } = await gateway.admin<{ sessions: unknown[] }>('/admin/sessions')
      return body.sessions.length === 0
    })
  })
