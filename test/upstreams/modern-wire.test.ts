import assert from 'node:assert/strict'
import type { ServerResponse } from 'node:http'
import { test } from 'node:test'
import { mayBeRepeated } from '../../src/mesh/classify.ts'
import { newCall, TestCaller, TestChannel, toolCall } from '../support/caller.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { discovered, events, json, modernServer, modernUpstream } from '../support/modern.ts'
import { until } from '../support/until.ts'

const never = new AbortController().signal
const ok = { content: [], resultType: 'complete' }
const keys = {
  version: 'io.modelcontextprotocol/protocolVersion',
  info: 'io.modelcontextprotocol/clientInfo',
  capabilities: 'io.modelcontextprotocol/clientCapabilities',
}

test('a request of the legacy era says all that its session knows, and stays as it is otherwise', async (t) => {
  const { url, came } = await modernServer(t, ({ body }, response) => {
    json(response, { jsonrpc: '2.0', id: body.id, result: ok })
  })
  const caller = new TestCaller()
  const upstreamSession = await modernUpstream(t, url).open(caller, never)
  const text =
    '{"x":1.0,"method":"tools/call","params":{"n":12345678901234567890,"name":"ü","_meta":{"progressToken":3}},"id":1,"jsonrpc":"2.0"}'
  await upstreamSession.exchange(newCall({ method: 'tools/call', text, caller }))
  const { headers, body, text: sent } = came[1]!
  const {
    [keys.version]: version,
    [keys.info]: info,
    [keys.capabilities]: able,
    ...rest
  } = body.params!._meta!
  assert.deepEqual(
    [version, info, able],
    ['2026-07-28', caller.initializeParams.clientInfo, caller.initializeParams.capabilities],
  )
  assert.deepEqual(rest, { progressToken: 3 })
  assert.equal(sent.replace(/"_meta":\{.*"progressToken"/, '"_meta":{"progressToken"'), text)
  assert.deepEqual(
    ['mcp-protocol-version', 'mcp-method', 'mcp-name', 'mcp-session-id'].map((name) => headers[name]),
    ['2026-07-28', 'tools/call', '=?base64?w7w=?=', undefined],
  )
})

test('a request that has no params, or empty ones, gets a _meta too', async (t) => {
  const { url, came } = await modernServer(t, ({ body }, response) => {
    json(response, { jsonrpc: '2.0', id: body.id, result: ok })
  })
  const upstreamSession = await modernUpstream(t, url).open(new TestCaller(), never)
  for (const params of ['', ',"params":{ }', ',"params":{"_meta":{}}']) {
    const text = `{"jsonrpc":"2.0","id":1,"method":"tools/list"${params}}`
    await upstreamSession.exchange(newCall({ method: 'tools/list', text }))
  }
  for (const { body } of came.slice(1)) assert.equal(body.params?._meta?.[keys.version], '2026-07-28')
})

test('a request of the modern era passes byte for byte', async (t) => {
  const { url, came } = await modernServer(t, ({ body }, response) => {
    json(response, { jsonrpc: '2.0', id: body.id, result: { resultType: 'input_required' } })
  })
  const upstreamSession = await modernUpstream(t, url).open(new TestCaller(), never)
  const text = `{"id":0,"jsonrpc":"2.0","method":"tools/call","params":{"name":"a","requestState":1.0,"_meta":{"${keys.version}":"2026-07-28"}}}`
  const caller = new TestCaller({ era: 'modern' })
  const call = {
    ...newCall({ method: 'tools/call', text, caller }),
    headers: { 'mcp-param-x': '=?base64?eA==?=' },
  }
  const outcome = await upstreamSession.exchange(call)
  assert.equal(came[1]?.text, text)
  assert.equal(came[1]?.headers['mcp-param-x'], '=?base64?eA==?=')
  assert.ok(outcome.kind === 'answered' && outcome.result.text.includes('input_required'))
})

test('a task belongs to its caller, though the caller never said that it knows tasks', async (t) => {
  const { url } = await modernServer(t, ({ body }, response) => {
    json(response, { jsonrpc: '2.0', id: body.id, result: { resultType: 'task', taskId: 'a' } })
  })
  const upstream = modernUpstream(t, url)
  for (const era of ['legacy', 'modern'] as const) {
    const [owner, other] = [new TestCaller({ era }), new TestCaller({ era })]
    const ask = async (caller: TestCaller, method: string, params: object) => {
      const session = await upstream.open(caller, never)
      const outcome = await session.exchange(newCall({ method, params: { ...params }, caller }))
      assert.ok(outcome.kind === 'answered')
      return outcome.result.text
    }
    assert.match(await ask(owner, 'tools/call', { name: 'begin' }), /"taskId":"a"/)
    assert.match(await ask(other, 'tasks/get', { taskId: 'a' }), /Task not found/, era)
    assert.match(await ask(owner, 'tasks/get', { taskId: 'a' }), /"taskId":"a"/)
  }
})

test('callers within the cache time share one discovery of a server', async (t) => {
  const { url, came } = await modernServer(t, () => {}, { ...discovered, ttlMs: 60_000 })
  const clock = new ManualClock()
  const upstream = modernUpstream(t, url, clock)
  const open = () => upstream.open(new TestCaller(), never)
  const [upstreamSession] = await Promise.all([open(), open(), open()])
  await clock.advance(59_999)
  await open()
  assert.equal(came.length, 1)
  assert.equal(
    upstreamSession.initializeResult.text,
    '{"protocolVersion":"2026-07-28","serverInfo":{"name":"raw","version":"1"},' +
      '"capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true},"logging":{}},"instructions":"hi"}',
  )
  await clock.advance(1)
  await open()
  assert.equal(came.length, 2)
})

test('a ping becomes a discovery, and a log level is kept for later requests', async (t) => {
  const { url, came } = await modernServer(t, () => {})
  const upstreamSession = await modernUpstream(t, url).open(new TestCaller(), never)
  for (const method of ['ping', 'logging/setLevel']) {
    const outcome = await upstreamSession.exchange(newCall({ method, params: { level: 'info' }, id: 5 }))
    assert.ok(outcome.kind === 'answered' && outcome.result.text === '{"jsonrpc":"2.0","id":5,"result":{}}')
  }
  await upstreamSession.post('{"jsonrpc":"2.0","method":"notifications/x"}')
  assert.deepEqual(
    came.map(({ body }) => body.method),
    ['server/discover', 'server/discover'],
  )
})

test('a broken stream fails its call, and is not reopened', async (t) => {
  const { url, came } = await modernServer(t, (_, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    response.end('id: 1\ndata: {"jsonrpc":"2.0","method":"notifications/message","params":{}}\n\n')
  })
  const upstreamSession = await modernUpstream(t, url).open(new TestCaller(), never)
  const outcome = await upstreamSession.exchange(toolCall('a'))
  assert.ok(outcome.kind === 'failed')
  assert.deepEqual([outcome.error.reason, outcome.error.sent], ['upstream_disconnected', true])
  assert.equal(came.length, 2)
})

test('a call that is given up loses its socket, and nothing is sent', async (t) => {
  let closed = false
  const { url, came } = await modernServer(t, (_, response) => {
    events(response)({ jsonrpc: '2.0', method: 'notifications/message', params: {} })
    response.once('close', () => (closed = true))
  })
  const upstreamSession = await modernUpstream(t, url).open(new TestCaller(), never)
  const patience = new AbortController()
  const channel = new TestChannel()
  const waiting = upstreamSession.exchange(toolCall('a', {}, { channel, signal: patience.signal }))
  await until('the stream is open', () => channel.received.length > 0)
  patience.abort({ reason: 'cancelled', message: 'no', sent: false, retryAfterMs: undefined })
  assert.deepEqual((await waiting).kind, 'failed')
  await until('the socket is closed', () => closed)
  assert.equal(came.length, 2)
})

test('arguments that a tool wants in headers are put there for a client that does not', async (t) => {
  const properties = {
    region: { type: 'string', 'x-mcp-header': 'Region' },
    deep: { type: 'object', properties: { n: { type: 'integer', 'x-mcp-header': 'N' } } },
    off: { type: 'boolean', 'x-mcp-header': 'Off' },
  }
  const tools = [{ name: 'a', inputSchema: { type: 'object', properties } }]
  const { url, came } = await modernServer(t, ({ body }, response) => {
    json(response, { jsonrpc: '2.0', id: body.id, result: { ...ok, tools } })
  })
  const upstreamSession = await modernUpstream(t, url).open(new TestCaller(), never)
  await upstreamSession.exchange(newCall({ method: 'tools/list' }))
  await upstreamSession.exchange(toolCall('a', { region: 'Zürich', deep: { n: 3 } }))
  const { headers } = came[2]!
  assert.deepEqual(
    ['region', 'n', 'off'].map((name) => headers[`mcp-param-${name}`]),
    ['=?base64?WsO8cmljaA==?=', '3', undefined],
  )
})

test('non-object output stands under "result" for legacy clients', async (t) => {
  const outputSchema = {
    type: 'array',
    items: { $ref: '#/$defs/n' },
    $defs: { n: { const: { $ref: '#/x' } } },
  }
  const tools = [
    { name: 'plain', outputSchema: { type: 'object' } },
    { name: 'list', outputSchema },
  ]
  const { url } = await modernServer(t, ({ body }, response) => {
    json(response, { jsonrpc: '2.0', id: body.id, result: { ...ok, tools, structuredContent: [1, 2] } })
  })
  const upstream = modernUpstream(t, url)
  for (const era of ['modern', 'legacy'] as const) {
    const caller = new TestCaller({ era })
    const upstreamSession = await upstream.open(caller, never)
    const listed = await upstreamSession.exchange(newCall({ method: 'tools/list', caller }))
    const called = await upstreamSession.exchange(toolCall('list', {}, { caller }))
    assert.ok(listed.kind === 'answered' && called.kind === 'answered')
    const result = listed.result.value.result as { tools: { outputSchema: unknown }[] }
    const { structuredContent } = called.result.value.result as { structuredContent: unknown }
    assert.deepEqual(result.tools[0]?.outputSchema, { type: 'object' })
    if (era === 'modern') {
      assert.deepEqual([result.tools[1]?.outputSchema, structuredContent], [outputSchema, [1, 2]])
      continue
    }
    const moved = { ...outputSchema, items: { $ref: '#/properties/result/$defs/n' } }
    assert.deepEqual(result.tools[1]?.outputSchema, {
      type: 'object',
      properties: { result: moved },
      required: ['result'],
    })
    assert.deepEqual(structuredContent, { result: [1, 2] })
  }
})

test('a server that asks without end, for nothing or for too much at once is not obeyed', async (t) => {
  const ask = { method: 'roots/list' }
  const asked: Readonly<Record<string, object>> = {
    endless: { roots: ask },
    bad: { bad: {} },
    many: Object.fromEntries(Array.from({ length: 101 }, (_, at) => [`roots-${at}`, ask])),
  }
  const { url, came } = await modernServer(t, ({ body }, response) => {
    const inputRequests = asked[body.params?.name as string]
    json(response, { jsonrpc: '2.0', id: body.id, result: { resultType: 'input_required', inputRequests } })
  })
  const upstreamSession = await modernUpstream(t, url).open(new TestCaller(), never)
  for (const name of Object.keys(asked)) {
    const channel = new TestChannel({ 'roots/list': '{"roots":[]}' })
    const outcome = await upstreamSession.exchange(toolCall(name, {}, { channel }))
    assert.ok(outcome.kind === 'failed' && outcome.error.reason === 'bad_reply', name)
  }
  assert.equal(came.length, 1 + 11 + 1 + 1)
})

test('a call whose later round a server turns down may have run', async (t) => {
  const { url } = await modernServer(t, ({ body }, response) => {
    if (body.params?.inputResponses !== undefined) return void response.writeHead(429).end()
    const inputRequests = { roots: { method: 'roots/list' } }
    json(response, { jsonrpc: '2.0', id: body.id, result: { resultType: 'input_required', inputRequests } })
  })
  const upstreamSession = await modernUpstream(t, url).open(new TestCaller(), never)
  const channel = new TestChannel({ 'roots/list': '{"roots":[]}' })
  const outcome = await upstreamSession.exchange(toolCall('write', {}, { channel }))
  assert.ok(outcome.kind === 'failed')
  assert.equal(mayBeRepeated(outcome.error, 'unknown'), false)
  assert.match(outcome.error.message, /limits our rate .* after it had begun the call/)
})

test('a server that only needs more time gets its state back, byte for byte, under a new id', async (t) => {
  const clock = new ManualClock()
  const { url, came } = await modernServer(t, ({ body }, response) => {
    const { requestState } = body.params!
    const result =
      requestState === undefined
        ? '{"resultType":"input_required","requestState":"\\u00e9"}'
        : '{"content":[]}'
    json(response, `{"jsonrpc":"2.0","id":${JSON.stringify(body.id)},"result":${result}}`)
  })
  const upstreamSession = await modernUpstream(t, url, clock).open(new TestCaller(), never)
  const asking = upstreamSession.exchange(toolCall('a', {}, { id: 0 }))
  await until('the request waits', () => clock.pending > 0)
  await clock.advance(250)
  const outcome = await asking
  assert.ok(outcome.kind === 'answered' && outcome.result.text.includes('"id":0,'))
  assert.ok(came[2]?.text.includes('"requestState":"\\u00e9"'))
  assert.notEqual(came[2]?.body.id, 0)
})

test('a subscription is kept as one stream, and another one takes its place when other resources are wanted', async (t) => {
  const streams: {
    filter: Record<string, unknown>
    response: ServerResponse
    say: (message: unknown) => void
  }[] = []
  const { url } = await modernServer(t, ({ body }, response) => {
    const say = events(response)
    const filter = body.params?.notifications as Record<string, unknown>
    streams.push({ filter, response, say })
    const _meta = { 'io.modelcontextprotocol/subscriptionId': body.id, x: 1 }
    say({
      jsonrpc: '2.0',
      method: 'notifications/subscriptions/acknowledged',
      params: { notifications: filter, _meta },
    })
    say({ jsonrpc: '2.0', method: 'notifications/resources/updated', params: { uri: 'a', _meta } })
  })
  const caller = new TestCaller()
  const upstreamSession = await modernUpstream(t, url).open(caller, never)
  upstreamSession.listen()
  await until('the first stream is open', () => streams.length === 1)
  const subscribe = (uri: string) =>
    upstreamSession.exchange(newCall({ method: 'resources/subscribe', params: { uri }, caller }))
  await Promise.all([subscribe('a'), subscribe('b')])
  assert.deepEqual(
    streams.map(({ filter }) => filter),
    [{ toolsListChanged: true }, { toolsListChanged: true, resourceSubscriptions: ['a', 'b'] }],
  )
  await until('the first stream is closed', () => streams[0]?.response.destroyed === true)
  await until('notifications came', () => caller.received.length === 2)
  assert.deepEqual(caller.received[0]?.message.value.params, { uri: 'a', _meta: { x: 1 } })
  await upstreamSession.close()
  await until('the second stream is closed', () => streams[1]?.response.destroyed === true)
})

test('a subscribe request during an opening is answered once a stream has its resource', async (t) => {
  const opened: { readonly filter: unknown; readonly acknowledge: () => void }[] = []
  const { url } = await modernServer(t, ({ body }, response) => {
    const filter = body.params?.notifications as Record<string, unknown>
    const method = 'notifications/subscriptions/acknowledged'
    const say = events(response)
    const acknowledge = () => say({ jsonrpc: '2.0', method, params: { notifications: filter } })
    if (opened.push({ filter, acknowledge }) > 1) acknowledge()
  })
  const caller = new TestCaller()
  const upstreamSession = await modernUpstream(t, url).open(caller, never)
  upstreamSession.listen()
  await until('the first stream is requested', () => opened.length === 1)
  const subscribed = upstreamSession.exchange(
    newCall({ method: 'resources/subscribe', params: { uri: 'a' }, caller }),
  )
  opened[0]?.acknowledge()
  await subscribed
  assert.deepEqual(opened[1]?.filter, { toolsListChanged: true, resourceSubscriptions: ['a'] })
  await upstreamSession.close()
})

test('a subscription that breaks is asked for again, with a doubling pause while it fails', async (t) => {
  const clock = new ManualClock()
  let works = true
  const { url, came } = await modernServer(t, ({ body }, response) => {
    if (body.method !== 'subscriptions/listen')
      return json(response, { jsonrpc: '2.0', id: body.id, result: ok })
    if (!works) return json(response, {}, 503)
    const params = { notifications: body.params?.notifications }
    events(response)({ jsonrpc: '2.0', method: 'notifications/subscriptions/acknowledged', params })
    response.end()
  })
  const upstreamSession = await modernUpstream(t, url, clock).open(new TestCaller(), never)
  upstreamSession.listen()
  // The call waits for the subscription.
  assert.equal((await upstreamSession.exchange(toolCall('a'))).kind, 'answered')
  await until('the pause begins', () => clock.pending === 1)
  works = false
  for (const [pauseMs, requests] of [
    [1_000, 4],
    [2_000, 5],
    [4_000, 6],
  ] as const) {
    await clock.advance(pauseMs - 1)
    assert.equal(came.length, requests - 1)
    await clock.advance(1)
    await until('the stream is requested again', () => came.length === requests && clock.pending === 1)
  }
  await upstreamSession.close()
  assert.equal(clock.pending, 0)
})

test('the gateway does not listen to a server without notifications', async (t) => {
  const { url, came } = await modernServer(t, () => {}, { ...discovered, capabilities: { tools: {} } })
  const upstreamSession = await modernUpstream(t, url).open(new TestCaller(), never)
  upstreamSession.listen()
  const refused = await upstreamSession.exchange(
    newCall({ method: 'resources/subscribe', params: { uri: 'a' } }),
  )
  assert.ok(refused.kind === 'answered' && refused.verdict === 'rpc_error')
  assert.equal(came.length, 1)
})
