import assert from 'node:assert/strict'
import { after, afterEach, test } from 'node:test'
import { until } from '../support/until.ts'
import { cleanUp, Gateway, type Json } from './support/gateway.ts'
import { errorOf, ModernClient } from './support/modern-client.ts'
import { closeServers, RawServer, sendJson } from './support/raw-server.ts'
import { stdioToolbox } from './support/toolbox.ts'

afterEach(closeServers)
after(cleanUp)

const initializeResult = {
  protocolVersion: '2025-11-25',
  capabilities: { tools: { listChanged: true }, resources: { subscribe: true } },
  serverInfo: { name: 'raw', version: '1.0.0' },
}

function legacy(call: Parameters<typeof RawServer.start>[0]): Promise<RawServer> {
  return RawServer.start(
    (seen, response) => {
      const { id, method } = seen.message
      if (method === 'initialize')
        sendJson(response, JSON.stringify({ jsonrpc: '2.0', id, result: initializeResult }))
      else if (String(method).startsWith('resources/'))
        sendJson(response, JSON.stringify({ jsonrpc: '2.0', id, result: {} }))
      else if (method === 'tools/call' || (method === undefined && seen.verb === 'POST'))
        return call(seen, response)
      else return false
      return true
    },
    ['ask', 'die'],
  )
}

async function before(server: RawServer): Promise<Gateway> {
  const gateway = await Gateway.start({ servers: { raw: { url: server.url, era: 'legacy' } } })
  await gateway.waitFor('up', 'raw')
  return gateway
}

test('a call of a server that is down gets our error, as a reply that clients can read', async () => {
  const gateway = await Gateway.start({
    servers: { down: { url: 'http://127.0.0.1:1/mcp' } },
    policies: { defaults: { gate: { patience: 0 } } },
  })
  await gateway.waitFor('down', 'down')
  const client = new ModernClient(gateway.mcp('down'))
  for (const reply of [await client.call('x'), await client.ask('server/discover')]) {
    assert.equal(reply.status, 200)
    assert.deepEqual([errorOf(reply).code, errorOf(reply).data.code], [1503, 'BW_UPSTREAM_UNAVAILABLE'])
  }
})

test('a server that dies in mid-stream ends the stream with an error for the call', async () => {
  const progress = {
    jsonrpc: '2.0',
    method: 'notifications/progress',
    params: { progressToken: 'p', progress: 1 },
  }
  const server = await legacy(({ message }, response) => {
    const { progressToken } = ((message.params as Json)._meta ?? {}) as Json
    const told = { ...progress, params: { ...progress.params, progressToken } }
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    response.write(`data: ${JSON.stringify(told)}\n\n`, () => response.destroy())
    return true
  })
  const gateway = await before(server)
  const client = new ModernClient(gateway.mcp('raw'))
  Object.assign(client.meta, { progressToken: 'p' })
  const { messages, text } = await client.call('die')
  assert.deepEqual(
    messages.map(({ id, method }) => id ?? method),
    ['notifications/progress', 0],
  )
  assert.equal((messages[0]?.params as Json).progressToken, 'p')
  assert.equal((messages[1]?.error as { data: Json }).data.code, 'BW_UPSTREAM_DISCONNECTED')
  assert.doesNotMatch(text, /^id:/m)
})

test('a legacy server that asks without end gets ten rounds of a modern client', async () => {
  const answers: Json[] = []
  let say: (message: Json) => void = () => undefined
  let callId: unknown
  const ask = () => say({ id: answers.length, method: 'elicitation/create', params: { message: '?' } })
  const server = await legacy(({ message }, response) => {
    if (message.method === undefined) {
      answers.push(message)
      response.writeHead(202).end()
      if (message.error === undefined) ask()
      else say({ id: callId, result: { content: [] } })
      return true
    }
    callId = message.id
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    say = (said) => void response.write(`data: ${JSON.stringify({ jsonrpc: '2.0', ...said })}\n\n`)
    ask()
    return true
  })
  const gateway = await before(server)
  const client = new ModernClient(gateway.mcp('raw'), { elicitation: {} })
  let more: Json = {}
  for (let round = 0; round < 10; round++) {
    const { messages } = await client.call('ask', {}, more)
    const { resultType, requestState, inputRequests } = messages[0]?.result as Json
    assert.equal(resultType, 'input_required')
    const [key] = Object.keys(inputRequests as Json)
    more = { requestState, inputResponses: { [String(key)]: { action: 'decline' } } }
  }
  const { messages } = await client.call('ask', {}, more)
  assert.deepEqual(messages[0]?.result, { resultType: 'complete', content: [] })
  assert.equal(answers.length, 11)
  assert.ok(answers.at(-1)?.error)
})

test('a stream that its client abandons leaves nothing behind', async () => {
  const server = await legacy(() => false)
  const gateway = await before(server)
  const client = new ModernClient(gateway.mcp('raw'))
  const streams = [
    await client.listen({ resourceSubscriptions: ['a://b'] }),
    await client.listen({ resourceSubscriptions: ['a://b'] }),
  ]
  await until('the server is asked', () => server.of('resources/subscribe').length === 2)
  streams[0]?.drop()
  streams[1]?.drop()
  await until(
    'the server gets the unsubscribe request',
    () => server.of('resources/unsubscribe').length === 1,
  )
})

test('changes of a server reach its listeners, and SIGTERM ends their streams with a result', async () => {
  const gateway = await Gateway.start({ servers: { box: stdioToolbox() } })
  await gateway.waitFor('up', 'box')
  const streams = [new ModernClient(gateway.mcp('box')), new ModernClient(gateway.mcp())].map((client) =>
    client.listen({ toolsListChanged: true, promptsListChanged: true }),
  )
  const [own, all] = (await Promise.all(streams)) as [
    Awaited<(typeof streams)[0]>,
    Awaited<(typeof streams)[0]>,
  ]
  await new ModernClient(gateway.mcp('box')).call('add', { name: 'new' })
  for (const stream of [own, all]) {
    const { params } = await stream.next(
      'the change',
      ({ method }) => method === 'notifications/tools/list_changed',
    )
    assert.equal(((params as Json)._meta as Json)['io.modelcontextprotocol/subscriptionId'], 0)
  }
  gateway.program.signal('SIGTERM')
  for (const stream of [own, all]) {
    await until('the stream ends', () => stream.ended)
    assert.equal(stream.broken, undefined)
    const last = stream.messages().at(-1)
    assert.deepEqual([last?.id, (last?.result as Json).resultType], [0, 'complete'])
  }
  assert.equal((await gateway.program.ended).code, 0)
})

test('removing a server ends the streams on it, and no other', async () => {
  const server = await legacy(() => false)
  const parts = { raw: { url: server.url, era: 'legacy' }, box: stdioToolbox() }
  const gateway = await Gateway.start({ servers: parts })
  await gateway.waitFor('up', 'raw', 'box')
  const doomed = await new ModernClient(gateway.mcp('raw')).listen({ resourceSubscriptions: ['a://b'] })
  const kept = await new ModernClient(gateway.mcp('box')).listen({ toolsListChanged: true })
  await gateway.reconfigure({ servers: { box: parts.box } })
  await until('the stream ends', () => doomed.ended)
  assert.equal((doomed.messages().at(-1)?.result as Json).resultType, 'complete')
  assert.equal(kept.ended, false)
  kept.drop()
})
