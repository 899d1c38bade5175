import assert from 'node:assert/strict'
import { connect } from 'node:net'
import { after, test } from 'node:test'
import { until } from '../support/until.ts'
import { cleanUp, Gateway, type GatewayParts, type Json } from './support/gateway.ts'
import { errorOf, ModernClient } from './support/modern-client.ts'
import { RawClient, type RawReply } from './support/raw-client.ts'
import { closeServers, RawServer } from './support/raw-server.ts'
import { stdioToolbox } from './support/toolbox.ts'

// Each limit once, from outside; priorities between clients are in test/downstream.

after(cleanUp)
after(closeServers)

/** Starts a gateway before one server, and waits until it is up. */
async function before(server: Json, gateway: Json = {}, more: Partial<GatewayParts> = {}): Promise<Gateway> {
  const started = await Gateway.start({ servers: { box: server }, gateway, ...more })
  await started.waitFor('up', 'box')
  return started
}

const refusals = (gateway: Gateway, limit: string) =>
  gateway.metric('breakwater_quota_refused_total', `limit="${limit}"`)

const initializeRequest = {
  jsonrpc: '2.0',
  id: 1,
  method: 'initialize',
  params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'greedy', version: '1' } },
}

const bearer = (token: string) => ({ headers: { authorization: `Bearer ${token}` } })

test('a client that hoards sessions loses the longest idle ones to others at the same address', async () => {
  const gateway = await before(stdioToolbox(), { sessions: { max: 20 } })
  const greedy = await RawClient.open(gateway.mcp('box'), bearer('greedy'))
  await greedy.request('ping')
  const replies: RawReply[] = []
  for (let n = 0; n < 50; n++) {
    const reply = await greedy.post(initializeRequest)
    replies.push(reply)
    const id = reply.headers.get('mcp-session-id')
    if (id !== null) await greedy.post({ jsonrpc: '2.0', id: 1, method: 'ping' }, { 'mcp-session-id': id })
  }
  assert.equal(replies.filter(({ status }) => status === 200).length, 9)
  assert.match(
    String(replies.at(-1)?.text),
    /too many sessions of this client \(limit 10, gateway\.limits\.perClient\)/,
  )
  assert.equal(await refusals(gateway, 'sessions_per_client'), 41)
  const bystander = await RawClient.open(gateway.mcp('box'), bearer('other'))
  assert.equal(await bystander.say('echo', { text: 'in' }), 'in')
  assert.equal(await gateway.metric('breakwater_sessions'), 10)
})

test('a client with large descriptions in many sessions keeps nobody out', async () => {
  const MIB = 1024 ** 2
  // Handshakes may keep a fifth of the memory, half of it from one address.
  const gateway = await before(stdioToolbox(), { limits: { memory: '64MiB' } })
  const long = Object.fromEntries(Array.from({ length: 200 }, (_, n) => [`k${n}`, 'x'.repeat(60)]))
  const params = { ...initializeRequest.params, capabilities: { experimental: long } }
  const greedy = await RawClient.open(gateway.mcp(), bearer('greedy'))
  let last = await greedy.post({ ...initializeRequest, params })
  for (let n = 0; n < 500 && last.status !== 503; n++)
    last = await greedy.post({ ...initializeRequest, params })
  assert.match(
    last.text,
    /too many bytes of clientInfo and capabilities of this client \(limit \d+, gateway\.limits\.perClient\)/,
  )
  for (const token of ['other', 'greedy']) {
    const bystander = await RawClient.open(gateway.mcp(), bearer(token))
    assert.equal(await bystander.say('box__echo', { text: 'in' }), 'in', token)
  }
  const bytes = (await gateway.metric('breakwater_initialize_params_bytes')) ?? 0
  assert.ok(bytes > 3 * MIB && bytes <= 6.5 * MIB, `${bytes} bytes`)
})

test('a client that listens under many names hears which limit it met, and others take its place', async () => {
  // Three of 1,024 kinds of clients, and of 1,000 subscriptions.
  const gateway = await before(stdioToolbox(), { sessions: { max: 1_000 }, limits: { perClient: 0.003 } })
  const kinds = Array.from(
    { length: 4 },
    (_, n) => new ModernClient(gateway.mcp('box'), { [`kind-${n}`]: {} }),
  )
  const notifications = { toolsListChanged: true }
  const listening = await Promise.all(kinds.slice(0, 3).map((kind) => kind.listen(notifications)))
  const listens = errorOf(await kinds[0]!.ask('subscriptions/listen', { notifications }))
  assert.match(listens.message, /subscriptions of this client \(limit 3, gateway\.limits\.perClient\)/)
  assert.equal(listens.data.reason, 'overloaded')
  const callers = errorOf(await kinds[3]!.call('echo', { text: 'x' }))
  assert.match(callers.message, /of this client \(limit 3, gateway\.limits\.perClient\)/)
  // Another token counts separately: the tenant with the most kinds loses its oldest listener.
  const other = kinds[3]!.request('tools/call', { name: 'echo', arguments: { text: 'x' } })
  const { messages: said } = await kinds[3]!.post(other, bearer('other').headers)
  assert.ok('result' in (said[0] ?? {}), JSON.stringify(said))
  await until('the oldest stream has ended', () => listening[0]?.ended === true)
  for (const reader of listening) reader.drop()
})

test('a client that begins many sessions with a process each is refused, and the server goes on', async () => {
  const gateway = await before(stdioToolbox({ sharing: 'per_session', processes: { max: 4, perClient: 2 } }))
  const clients = await Promise.all(Array.from({ length: 6 }, () => RawClient.open(gateway.mcp('box'))))
  const errors = clients.filter(({ welcome }) => 'error' in welcome)
  assert.equal(errors.length, 4)
  assert.match(JSON.stringify(errors[0]?.welcome), /\(limit 2, mcpServers\.box\.processes\.perClient\)/)
  assert.equal((await gateway.server('box'))?.state, 'up')
})

test('bodies that are completed together begin no more calls than one client may have, and each refusal counts once', async () => {
  const gateway = await before(stdioToolbox(), { maxInFlight: 8 })
  const { url, headers } = await RawClient.open(gateway.mcp('box'))
  const { hostname, port, pathname } = new URL(url)
  const lines = Object.entries({
    ...headers,
    'content-type': 'application/json',
    host: `${hostname}:${port}`,
  })
  const posts = Array.from({ length: 6 }, (_, id) => {
    const params = { name: 'sleep', arguments: { ms: 5_000 } }
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
  assert.equal(await refusals(gateway, 'calls_per_client'), 2)
  for (const { socket } of posts) socket.destroy()
})

const canAnswer = { capabilities: { elicitation: { form: {} } } }
const answer = { action: 'accept', content: {} }
const event = (message: Json) => `data: ${JSON.stringify({ jsonrpc: '2.0', ...message })}\n\n`

/** A server: its tool `ask` asks the agent and returns the whole answer, its tool `hang` never ends. */
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

/** Calls `ask` in a session, and waits for the server's question. */
async function asked(agent: RawClient, id: string) {
  const call = { jsonrpc: '2.0', id, method: 'tools/call', params: { name: 'ask', arguments: {} } }
  const reader = await agent.stream(call)
  const question = await reader.next('the agent is asked', ({ method }) => method === 'elicitation/create')
  return { reader, answer: { jsonrpc: '2.0', id: question.id, result: answer } }
}

test('calls that wait for their agent keep no call out, and a full gateway takes answers, pings and cancellations', async () => {
  const { url } = await askingServer()
  const gateway = await before({ url }, { maxInFlight: 7, limits: { perClient: 1 } })
  const patient = await RawClient.open(gateway.mcp('box'), canAnswer)
  const modern = new ModernClient(gateway.mcp('box'), canAnswer.capabilities)
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

  const busy = await RawClient.open(gateway.mcp('box'))
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
  // Each call has released its slot once, and no slot twice.
  await cancel(await fill(0))
  assert.equal(await isFull(), false)
})

test('a session that never answers leaves room for the questions to others at its address', async () => {
  const { url } = await askingServer()
  const gateway = await before({ url }, { maxInFlight: 32 })
  const silent = await RawClient.open(gateway.mcp('box'), canAnswer)
  for (const id of ['a', 'b']) await asked(silent, id)
  assert.match(
    await silent.say('ask'),
    /too many calls that wait for answers of this session \(limit 2, a quarter of the share that gateway\.limits\.perClient gives\)/,
  )
  assert.equal(await refusals(gateway, 'pendingInputs_per_session'), 1)
  const other = await RawClient.open(gateway.mcp('box'), canAnswer)
  const { reader, answer } = await asked(other, 'c')
  await other.post(answer)
  await reader.next('the call ends', ({ result }) => JSON.stringify(result ?? '').includes('accept'))
})

test('hundreds of calls that wait for their agents leave their server sockets for the calls of others', async () => {
  const { url } = await askingServer()
  const gateway = await before({ url }, { maxInFlight: 4_000 })
  for (let session = 0; session < 2; session++) {
    const silent = await RawClient.open(gateway.mcp('box'), canAnswer)
    for (let round = 0; round < 13; round++)
      await Promise.all(Array.from({ length: 10 }, (_, n) => asked(silent, `${round} ${n}`)))
  }
  const other = await RawClient.open(gateway.mcp('box'), canAnswer)
  const { reader, answer } = await asked(other, 'other')
  await other.post(answer)
  await reader.next('the call ends', ({ result }) => JSON.stringify(result ?? '').includes('accept'))
})

test('a tenant with many calls leaves the last places of its address to tenants with few', async () => {
  const { url } = await askingServer()
  const gateway = await before({ url }, { maxInFlight: 32 })
  const busy = await RawClient.open(gateway.mcp('box'))
  const hang = { method: 'tools/call', params: { name: 'hang', arguments: {} } }
  const hanging = Array.from({ length: 14 }, (_, id) => busy.post({ jsonrpc: '2.0', id, ...hang }))
  await gateway.waitForCalls(hanging.length)
  const refusal = /nearly too many calls of this client \(limit \d+, gateway\.limits\.perClient\)/
  assert.match((await busy.post({ jsonrpc: '2.0', id: 'more', ...hang })).text, refusal)
  assert.equal(await refusals(gateway, 'calls_per_tenant'), 1)
  // A client without a name counts separately.
  const other = new ModernClient(gateway.mcp('box'), canAnswer.capabilities)
  delete other.meta['io.modelcontextprotocol/clientInfo']
  assert.equal(((await other.call('ask')).messages[0]?.result as Json).resultType, 'input_required')
  for (const requestId of hanging.keys())
    await busy.post({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId } })
  await Promise.all(hanging)
})

/** A rate that refills nothing during a test, however slow the machine. */
const RATE = '1/h'

const countOf = (reason: string, responses: readonly Json[]) =>
  responses.filter(({ error }) => (error as { data?: Json } | undefined)?.data?.reason === reason).length

test('a session that calls in a loop is refused at the door, others are not, and a reload changes it', async () => {
  const limits = { perSession: { rate: RATE, burst: 20 }, rejectionPause: 0 }
  const gateway = await before(stdioToolbox(), { limits })
  const [hot, other] = [await RawClient.open(gateway.mcp('box')), await RawClient.open(gateway.mcp('box'))]
  const received = async () =>
    (await other.say('received')).split(',').filter((method) => method === 'tools/call').length
  const earlier = await received()
  const responses = []
  for (let n = 0; n < 100; n++) responses.push(await hot.call('echo', { text: 'x' }))
  const refused = countOf('rate_limited', responses)
  assert.ok(refused >= 80, `${refused} of 100 were refused`)
  assert.equal((await received()) - earlier, 100 - refused + 1)
  assert.equal(await gateway.metric('breakwater_requests_refused_total', 'limit="per_session"'), refused)
  assert.equal(gateway.log.filter(({ msg }) => msg === 'call').length, 0)

  await gateway.reconfigure({ servers: { box: stdioToolbox() } })
  const isLimited = async () => countOf('rate_limited', [await hot.call('echo')]) > 0
  await until('the limit is gone', async () => !(await isLimited()))
  for (let n = 0; n < 50; n++) assert.equal(await isLimited(), false)
})

test('a client that loops over rejections gets them later and later, and everything else at once', async () => {
  const policies = { overrides: [{ match: { tool: 'fail' }, rateLimit: { rate: RATE, burst: 1 } }] }
  const gateway = await before(stdioToolbox(), {}, { policies })
  const [client, other] = [await RawClient.open(gateway.mcp('box')), await RawClient.open(gateway.mcp('box'))]
  const held = () => gateway.metric('breakwater_rejections_held_total')
  // The first call is let through, the second learns when to retry, and ten more may come too soon.
  for (let n = 0; n < 12; n++) await client.call('fail')
  assert.equal(await held(), 0)
  // Ten a second are free: on a busy machine a sequential loop may not be faster.
  await until('some rejections are held', async () => {
    const responses = await Promise.all(Array.from({ length: 30 }, () => client.call('fail')))
    assert.equal(countOf('rate_limited', responses), 30)
    return (await held()) !== 0
  })
  const some = await held()
  await client.call('echo', { text: 'x' })
  await other.call('fail')
  assert.equal(await held(), some)
})
