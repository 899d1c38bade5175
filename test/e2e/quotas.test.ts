import assert from 'node:assert/strict'
import { connect } from 'node:net'
import { after, test } from 'node:test'
import { heldServer } from '../gateway/held-server.ts'
import { until } from '../support/until.ts'
import { cleanUp, Gateway, type Json } from './support/gateway.ts'
import { errorOf, ModernClient } from './support/modern-client.ts'
import { RawClient, type RawReply } from './support/raw-client.ts'
import { closeServers, RawServer } from './support/raw-server.ts'
import { stdioToolbox } from './support/toolbox.ts'

after(cleanUp)
after(closeServers)

const initializeRequest = {
  jsonrpc: '2.0',
  id: 1,
  method: 'initialize',
  params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'greedy', version: '1' } },
}

test('sessions that were never used make room for the next ones of their client', async () => {
  const sessions = { max: 20 }
  const gateway = await Gateway.start({ servers: { box: stdioToolbox() }, gateway: { sessions } })
  await gateway.waitFor('up', 'box')
  const used = await RawClient.open(gateway.mcp('box'))
  assert.equal(await used.say('echo', { text: 'in' }), 'in')
  for (let n = 0; n < 50; n++) assert.equal((await used.post(initializeRequest)).status, 200)
  assert.equal(await used.say('echo', { text: 'still' }), 'still')
  assert.equal(await gateway.metric('breakwater_sessions'), 10)
})

test('who hoards sessions loses the longest idle ones to others at the same address', async () => {
  const sessions = { max: 20 }
  const gateway = await Gateway.start({ servers: { box: stdioToolbox() }, gateway: { sessions } })
  await gateway.waitFor('up', 'box')
  const greedy = await RawClient.open(gateway.mcp('box'), { headers: { authorization: 'Bearer greedy' } })
  await greedy.request('ping')
  const statuses: number[] = []
  const texts: string[] = []
  for (let n = 0; n < 50; n++) {
    const { status, text, headers } = await greedy.post(initializeRequest)
    statuses.push(status)
    texts.push(text)
    const id = headers.get('mcp-session-id')
    if (id !== null) await greedy.post({ jsonrpc: '2.0', id: 1, method: 'ping' }, { 'mcp-session-id': id })
  }
  assert.equal(statuses.filter((status) => status === 200).length, 9)
  assert.match(
    texts.at(-1) ?? '',
    /too many sessions of this client \(limit 10, gateway\.limits\.perClient\)/,
  )
  assert.equal(await gateway.metric('breakwater_quota_refused_total', 'limit="sessions_per_client"'), 41)
  const bystander = await RawClient.open(gateway.mcp('box'), { headers: { authorization: 'Bearer other' } })
  assert.equal(await bystander.say('echo', { text: 'in' }), 'in')
  assert.equal(await gateway.metric('breakwater_sessions'), 10)
})

test('who says very much of itself in many sessions keeps nobody out, at its own address or from another one', async () => {
  const gateway = await Gateway.start({ servers: { box: stdioToolbox() } })
  await gateway.waitFor('up', 'box')
  const long = Object.fromEntries(Array.from({ length: 200 }, (_, n) => [`k${n}`, 'x'.repeat(60)]))
  const params = { ...initializeRequest.params, capabilities: { experimental: long } }
  const greedy = await RawClient.open(gateway.mcp(), { headers: { authorization: 'Bearer greedy' } })
  const statuses: number[] = []
  // 64 MiB for one address, of which each takes some 60 KB.
  while (statuses.length < 2_000 && statuses.at(-1) !== 503) {
    const replies = await Promise.all(
      Array.from({ length: 10 }, () => greedy.post({ ...initializeRequest, params })),
    )
    statuses.push(...replies.map(({ status }) => status))
  }
  assert.equal(statuses.at(-1), 503, `${statuses.length} sessions were taken`)
  const { text } = await greedy.post({ ...initializeRequest, params })
  assert.match(
    text,
    /too many bytes of clientInfo and capabilities of this client \(limit 67108864, gateway\.limits\.perClient\)/,
  )
  for (const authorization of ['Bearer other', 'Bearer greedy']) {
    const bystander = await RawClient.open(gateway.mcp(), { headers: { authorization } })
    assert.equal(await bystander.say('box__echo', { text: 'in' }), 'in', authorization)
  }
  const bytes = (await gateway.metric('breakwater_initialize_params_bytes')) ?? 0
  assert.ok(bytes > 32 * 1024 ** 2 && bytes <= 64 * 1024 ** 2, `${bytes} bytes`)
})

test('who listens under many names ends no call of others, and is told what there is too much of', async () => {
  // Three of 1,024 kinds of clients, and of 1,000 subscriptions.
  const settings = { sessions: { max: 1_000 }, limits: { perClient: 0.003 } }
  const held = await heldServer('held')
  const servers = { box: stdioToolbox(), held: { url: held.url } }
  const gateway = await Gateway.start({ servers, gateway: settings })
  await gateway.waitFor('up', 'box', 'held')
  const bystander = new ModernClient(gateway.mcp('held'))
  const slow = bystander.call('hold')
  await held.holds(1)
  const kinds = Array.from(
    { length: 4 },
    (_, n) => new ModernClient(gateway.mcp('box'), { [`kind-${n}`]: {} }),
  )
  const notifications = { toolsListChanged: true }
  const listening = [await kinds[0]!.listen(notifications), await kinds[1]!.listen(notifications)]
  listening.push(await kinds[1]!.listen(notifications))
  const listens = errorOf(await kinds[0]!.ask('subscriptions/listen', { notifications }))
  assert.match(listens.message, /subscriptions of this client \(limit 3, gateway\.limits\.perClient\)/)
  assert.equal(listens.data.reason, 'overloaded')
  const callers = errorOf(await kinds[2]!.call('echo', { text: 'x' }))
  assert.match(callers.message, /of this client \(limit 3, gateway\.limits\.perClient\)/)
  // Another token is no part of that: whoever has the most kinds loses the one that listened for longest.
  const other = kinds[3]!.request('tools/call', { name: 'echo', arguments: { text: 'x' } })
  const { messages: said } = await kinds[3]!.post(other, { authorization: 'Bearer other' })
  assert.ok('result' in (said[0] ?? {}), JSON.stringify(said))
  const first = listening.shift()
  await until('its stream has ended', () => first?.ended === true)
  held.answer()
  const { messages } = await slow
  assert.ok('result' in (messages.at(-1) ?? {}), JSON.stringify(messages))
  for (const reader of listening) assert.equal(reader.ended, false)
  // The call is over, so its caller can make room.
  assert.ok('result' in ((await kinds[2]!.call('echo', { text: 'x' })).messages[0] ?? {}))
  for (const reader of listening) reader.drop()
})

test('who begins many sessions with a process each is refused, and the server goes on', async () => {
  const box = stdioToolbox({ sharing: 'per_session', processes: { max: 4, perClient: 2 } })
  const gateway = await Gateway.start({ servers: { box } })
  await gateway.waitFor('up', 'box')
  const clients = await Promise.all(Array.from({ length: 6 }, () => RawClient.open(gateway.mcp('box'))))
  const errors = clients.filter(({ welcome }) => 'error' in welcome)
  assert.equal(errors.length, 4)
  assert.match(JSON.stringify(errors[0]?.welcome), /\(limit 2, mcpServers\.box\.processes\.perClient\)/)
  const inside = clients.find(({ welcome }) => 'result' in welcome)
  assert.equal(await inside?.say('echo', { text: 'in' }), 'in')
  assert.equal((await gateway.server('box'))?.state, 'up')
  await gateway.waitFor('up', 'box')
})

test('bodies that are completed together begin no more calls than one client may have', async () => {
  const gateway = await Gateway.start({ servers: { box: stdioToolbox() }, gateway: { maxInFlight: 8 } })
  await gateway.waitFor('up', 'box')
  const { url, headers } = await RawClient.open(gateway.mcp('box'))
  const { hostname, port, pathname } = new URL(url)
  const lines = Object.entries({
    ...headers,
    'content-type': 'application/json',
    host: `${hostname}:${port}`,
  })
  const posts = Array.from({ length: 6 }, (_, id) => {
    const params = { name: 'sleep', arguments: { ms: 500 } }
    const body = JSON.stringify({ jsonrpc: '2.0', id, method: 'tools/call', params })
    const socket = connect(Number(port), hostname)
    const status = new Promise<string>((resolve) => {
      socket.once('data', (chunk: Buffer) => resolve(chunk.toString('latin1').slice(9, 12)))
    })
    const head = [...lines, ['content-length', String(body.length)]].map((line) => `${line.join(': ')}\r\n`)
    socket.write(`POST ${pathname} HTTP/1.1\r\n${head.join('')}\r\n${body.slice(0, -1)}`)
    return { socket, status, finish: () => socket.write(body.slice(-1)) }
  })
  await until('all bodies are on their way', async () => {
    return (await gateway.metric('breakwater_request_bodies')) === posts.length
  })
  for (const { finish } of posts) finish()
  const statuses = (await Promise.all(posts.map(({ status }) => status))).sort()
  assert.deepEqual(statuses, ['200', '200', '200', '200', '429', '429'])
  for (const { socket } of posts) socket.destroy()
})

test('a call that is refused because its client has too many is counted once', async () => {
  const gateway = await Gateway.start({ servers: { box: stdioToolbox() }, gateway: { maxInFlight: 2 } })
  await gateway.waitFor('up', 'box')
  const client = await RawClient.open(gateway.mcp('box'))
  const slow = client.call('sleep', { ms: 1_500 })
  await gateway.waitForCalls(1)
  const params = { name: 'echo', arguments: { text: 'x' } }
  for (let id = 1; id <= 3; id++)
    assert.equal(
      (await client.post({ jsonrpc: '2.0', id: `more-${id}`, method: 'tools/call', params })).status,
      429,
    )
  assert.equal(await gateway.metric('breakwater_quota_refused_total', 'limit="calls_per_client"'), 3)
  await slow
})

const canAnswer = { capabilities: { elicitation: { form: {} } } }
const answer = { action: 'accept', content: {} }
const event = (message: Json) => `data: ${JSON.stringify({ jsonrpc: '2.0', ...message })}\n\n`

/** A server whose tool `ask` asks the agent and returns the whole answer, and whose tool `hang` never ends. */
async function askingServer(): Promise<RawServer> {
  const asking = new Map<unknown, (text: string) => void>()
  return RawServer.start(
    ({ message }, response) => {
      const { id, method, params } = message as { id?: unknown; method?: string; params?: Json }
      if (method === 'tools/call') {
        if (params?.name === 'hang') return true
        const question = asking.size + 1
        asking.set(question, (text) => {
          response.end(event({ id, result: { content: [{ type: 'text', text }] } }))
        })
        response.writeHead(200, { 'content-type': 'text/event-stream' })
        const ask = { message: 'Go on?', requestedSchema: { type: 'object', properties: {} } }
        response.write(event({ id: question, method: 'elicitation/create', params: ask }))
        return true
      }
      const end = method === undefined ? asking.get(id) : undefined
      if (end === undefined) return false
      response.writeHead(202).end()
      end(JSON.stringify(message))
      return true
    },
    ['ask', 'hang'],
  )
}

/** Calls `ask` in a session, and waits for the question of its server. */
async function asked(agent: RawClient, id: string) {
  const call = { jsonrpc: '2.0', id, method: 'tools/call', params: { name: 'ask', arguments: {} } }
  const reader = await agent.stream(call)
  const question = await reader.next('the agent is asked', ({ method }) => method === 'elicitation/create')
  return { reader, answer: { jsonrpc: '2.0', id: question.id, result: answer } }
}

test('calls that wait for their agent keep no call out, and a full gateway takes answers, pings and cancellations', async () => {
  const { url } = await askingServer()
  const limits = { perClient: 1 }
  const gateway = await Gateway.start({ servers: { raw: { url } }, gateway: { maxInFlight: 7, limits } })
  await gateway.waitFor('up', 'raw')
  const patient = await RawClient.open(gateway.mcp('raw'), canAnswer)
  const modern = new ModernClient(gateway.mcp('raw'), canAnswer.capabilities)
  const waiting = [await asked(patient, 'a')]
  const pending = (await modern.call('ask')).messages[0]?.result as Json
  assert.equal(pending.resultType, 'input_required')
  const inputResponses = { [String(Object.keys(pending.inputRequests as Json)[0])]: answer }
  const resumes = modern.request('tools/call', {
    ...{ name: 'ask', arguments: {} },
    ...{ requestState: pending.requestState, inputResponses },
  })
  const foreign = await modern.post(resumes, { 'x-breakwater-tenant': 'another' })
  assert.equal(errorOf(foreign).data.reason, 'invalid_request_state')

  const busy = await RawClient.open(gateway.mcp('raw'))
  const hang = (id: string) =>
    busy.post({ jsonrpc: '2.0', id, method: 'tools/call', params: { name: 'hang', arguments: {} } })
  const isFull = async () => {
    const { status } = await busy.post({ jsonrpc: '2.0', id: 'one-more', method: 'tools/list' })
    return status === 503
  }
  const ids = Array.from({ length: 7 }, (_, n) => `call-${n}`)
  const fill = async (others: number) => {
    const hanging = ids.map(hang)
    await gateway.waitForCalls(others + hanging.length)
    assert.ok(await isFull())
    return hanging
  }
  const cancel = async (hanging: Promise<RawReply>[]) => {
    for (const requestId of ids) {
      const params = { requestId }
      assert.equal(
        (await busy.post({ jsonrpc: '2.0', method: 'notifications/cancelled', params })).status,
        202,
      )
    }
    await Promise.all(hanging)
  }

  const hanging = await fill(waiting.length)
  const forged = await modern.call('ask', {}, { requestState: 'breakwater.forged', inputResponses })
  assert.equal(forged.status, 503)
  const resumed = await modern.call('ask', {}, { requestState: pending.requestState, inputResponses })
  assert.match(JSON.stringify(resumed.messages[0]?.result), /accept/)
  for (const { reader, answer } of waiting) {
    assert.equal((await patient.post(answer)).status, 202)
    await reader.next('the call ends', ({ result }) => JSON.stringify(result ?? '').includes('accept'))
  }
  assert.deepEqual((await busy.request('ping')).result, {})
  await cancel(hanging)
  // Each call has given back its place once, and no place twice.
  await cancel(await fill(0))
  assert.equal(await isFull(), false)
})

test('a session that never answers leaves room for the questions to others at its address', async () => {
  const { url } = await askingServer()
  const gateway = await Gateway.start({ servers: { raw: { url } }, gateway: { maxInFlight: 32 } })
  await gateway.waitFor('up', 'raw')
  const silent = await RawClient.open(gateway.mcp('raw'), canAnswer)
  for (const id of ['a', 'b']) await asked(silent, id)
  assert.match(
    await silent.say('ask'),
    /too many calls that wait for answers of this session \(limit 2, a quarter of the share that gateway\.limits\.perClient gives\)/,
  )
  const limit = 'limit="pendingInputs_per_session"'
  assert.equal(await gateway.metric('breakwater_quota_refused_total', limit), 1)
  const other = await RawClient.open(gateway.mcp('raw'), canAnswer)
  const { reader, answer } = await asked(other, 'c')
  await other.post(answer)
  await reader.next('the call ends', ({ result }) => JSON.stringify(result ?? '').includes('accept'))
})

test('hundreds of calls that wait for their agents leave their server sockets for the calls of others', async () => {
  const { url } = await askingServer()
  const gateway = await Gateway.start({ servers: { raw: { url } }, gateway: { maxInFlight: 4_000 } })
  await gateway.waitFor('up', 'raw')
  for (let session = 0; session < 2; session++) {
    const silent = await RawClient.open(gateway.mcp('raw'), canAnswer)
    for (let round = 0; round < 13; round++)
      await Promise.all(Array.from({ length: 10 }, (_, n) => asked(silent, `${round} ${n}`)))
  }
  const other = await RawClient.open(gateway.mcp('raw'), canAnswer)
  const { reader, answer } = await asked(other, 'other')
  await other.post(answer)
  await reader.next('the call ends', ({ result }) => JSON.stringify(result ?? '').includes('accept'))
})

test('a tenant with many calls leaves the last places of its address to tenants with few', async () => {
  const { url } = await askingServer()
  const gateway = await Gateway.start({ servers: { raw: { url } }, gateway: { maxInFlight: 32 } })
  await gateway.waitFor('up', 'raw')
  const busy = await RawClient.open(gateway.mcp('raw'))
  const hang = { method: 'tools/call', params: { name: 'hang', arguments: {} } }
  const hanging = Array.from({ length: 14 }, (_, id) => busy.post({ jsonrpc: '2.0', id, ...hang }))
  await gateway.waitForCalls(hanging.length)
  const refusal = /nearly too many calls of this client \(limit \d+, gateway\.limits\.perClient\)/
  assert.match((await busy.post({ jsonrpc: '2.0', id: 'more', ...hang })).text, refusal)
  // New names count as one tenant, in both eras; who gives no name is another one.
  assert.match((await new ModernClient(gateway.mcp('raw')).call('hang')).text, refusal)
  assert.equal(await gateway.metric('breakwater_quota_refused_total', 'limit="calls_per_tenant"'), 2)
  const other = new ModernClient(gateway.mcp('raw'), canAnswer.capabilities)
  delete other.meta['io.modelcontextprotocol/clientInfo']
  assert.equal(((await other.call('ask')).messages[0]?.result as Json).resultType, 'input_required')
  for (const requestId of hanging.keys())
    await busy.post({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId } })
  await Promise.all(hanging)
})

test('a tenant with many subscriptions leaves the last ones of its address to tenants with few', async () => {
  const gateway = await Gateway.start({
    servers: { box: stdioToolbox() },
    gateway: { sessions: { max: 32 } },
  })
  await gateway.waitFor('up', 'box')
  const notifications = { toolsListChanged: true }
  const many = new ModernClient(gateway.mcp('box'))
  for (let i = 0; i < 14; i++) await many.listen(notifications)
  const { message } = errorOf(await many.ask('subscriptions/listen', { notifications }))
  assert.match(
    message,
    /nearly too many subscriptions of this client \(limit \d+, gateway\.limits\.perClient\)/,
  )
  // New names count as one tenant; who gives no name is another one.
  const other = new ModernClient(gateway.mcp('box'))
  delete other.meta['io.modelcontextprotocol/clientInfo']
  await other.listen(notifications)
})
