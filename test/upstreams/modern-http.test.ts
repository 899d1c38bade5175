import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { startModernServer } from '../fixtures/modern-server.ts'
import { newCall, TestCaller, TestChannel, toolCall, type CallParts } from '../support/caller.ts'
import { modernUpstream } from '../support/modern.ts'
import { until } from '../support/until.ts'

const never = new AbortController().signal

async function setUp(t: TestContext, caller = new TestCaller()) {
  const server = await startModernServer()
  const upstream = modernUpstream(t, server.url)
  t.after(() => upstream.close().then(() => server.close()))
  const upstreamSession = await upstream.open(caller, never)
  return {
    upstreamSession,
    caller,
    tool: (name: string, parts: Partial<CallParts> = {}) =>
      upstreamSession.exchange(toolCall(name, {}, { caller, ...parts })),
    ask: (method: string, params = {}, parts: Partial<CallParts> = {}) =>
      upstreamSession.exchange(newCall({ method, params, caller, ...parts })),
  }
}

function resultOf(outcome: Awaited<ReturnType<Awaited<ReturnType<typeof setUp>>['tool']>>) {
  if (outcome.kind !== 'answered') throw new Error(`${outcome.error.reason}: ${outcome.error.message}`)
  assert.deepEqual(JSON.parse(outcome.result.text), outcome.result.value)
  assert.equal(outcome.result.value.error, undefined)
  return outcome.result.value.result as { content: [{ text: string }]; tools: { name: string }[] }
}

const form = '{"action":"accept","content":{"name":"Zoë","color":"blue","ok":true}}'
const model = '{"role":"assistant","model":"m","content":{"type":"text","text":"Paris"}}'
const roots = '{"roots":[{"uri":"file:///r","name":"r"}]}'
const answering = () =>
  new TestChannel({ 'elicitation/create': form, 'sampling/createMessage': model, 'roots/list': roots })

test('discovery gives a result in the form of an initialize result', async (t) => {
  const { upstreamSession } = await setUp(t)
  const { protocolVersion, capabilities, serverInfo } = upstreamSession.initializeResult.value
  assert.equal(protocolVersion, '2026-07-28')
  assert.deepEqual(serverInfo, { name: 'modern-fixture', version: '1.0.0' })
  assert.ok('tools' in (capabilities as object))
  assert.deepEqual(JSON.parse(upstreamSession.initializeResult.text), upstreamSession.initializeResult.value)
})

test('lists and calls of a client of the legacy era are answered under its ids', async (t) => {
  const { ask, tool } = await setUp(t)
  assert.ok(resultOf(await ask('tools/list')).tools.length > 5)
  for (const id of [0, 'text', 7]) {
    const outcome = await tool('test_simple_text', { id })
    assert.match(resultOf(outcome).content[0].text, /simple text/)
    assert.ok(outcome.kind === 'answered' && outcome.result.value.id === id)
  }
  resultOf(await ask('prompts/get', { name: 'test_simple_prompt' }))
  resultOf(await ask('resources/read', { uri: 'test://static-text' }))
})

test('progress comes under the token of the call, and logs come once a level was set', async (t) => {
  const { ask, upstreamSession, caller, tool } = await setUp(t)
  const channel = new TestChannel()
  const params = { name: 'test_tool_with_progress', arguments: {}, _meta: { progressToken: 'mine' } }
  resultOf(await upstreamSession.exchange(newCall({ method: 'tools/call', params, caller, channel })))
  const told = channel.of('notifications/progress').map(({ value }) => value.params as object)
  assert.deepEqual(
    told.map((one) => ({ ...one })),
    [0, 50, 100].map((progress) => ({ progressToken: 'mine', progress, total: 100 })),
  )
  resultOf(await tool('test_logging_tool', { channel }))
  assert.equal(channel.of('notifications/message').length, 0)
  resultOf(await ask('logging/setLevel', { level: 'debug' }))
  resultOf(await tool('test_logging_tool', { channel }))
  assert.equal(channel.of('notifications/message').length, 3)
})

test('a result that asks for input becomes requests to a client that does not know such results', async (t) => {
  const { tool, ask } = await setUp(t)
  const channel = answering()
  const said = async (name: string) =>
    resultOf(await tool(`test_input_required_result_${name}`, { channel, id: 'mine' })).content[0].text
  assert.equal(await said('elicitation'), 'Hello, Zoë!')
  assert.match(await said('sampling'), /Paris/)
  assert.equal(await said('list_roots'), 'file:///r')
  assert.equal(await said('request_state'), 'state-ok')
  assert.match(await said('multiple_inputs'), /Hello, Zoë!;.*Paris.*; file:\/\/\/r/)
  assert.equal(await said('multi_round'), '["Zoë","blue"]')
  resultOf(await ask('prompts/get', { name: 'test_simple_prompt' }, { channel }))
  const ids = channel.received.map(({ message }) => message.value.id)
  assert.equal(new Set(ids).size, ids.length)
})

test('the answer to a call with rounds carries the id of the call', async (t) => {
  const { tool } = await setUp(t)
  const outcome = await tool('test_input_required_result_multi_round', { channel: answering(), id: 42 })
  assert.ok(outcome.kind === 'answered')
  assert.equal(outcome.result.value.id, 42)
  assert.match(outcome.result.text, /"id":42/)
})

test('a client that knows results which ask for input gets them as they are', async (t) => {
  const { tool } = await setUp(t, new TestCaller({ era: 'modern' }))
  const channel = answering()
  const result = resultOf(await tool('test_input_required_result_elicitation', { channel }))
  assert.equal((result as { resultType?: unknown }).resultType, 'input_required')
  assert.equal(channel.received.length, 0)
})

test('a call that is given up while its client is asked ends, and the question is taken back', async (t) => {
  const { tool } = await setUp(t)
  const channel = new TestChannel()
  const patience = new AbortController()
  const asking = tool('test_input_required_result_elicitation', { channel, signal: patience.signal })
  await until('the client is asked', () => channel.received.length > 0)
  patience.abort({ reason: 'cancelled', message: 'no', sent: false, retryAfterMs: undefined })
  assert.equal((await asking).kind, 'failed')
  const elicitationId = channel.of('elicitation/create')[0]?.value.id
  assert.deepEqual(
    channel
      .of('notifications/cancelled')
      .map(({ value }) => (value.params as { requestId: unknown }).requestId),
    [elicitationId],
  )
})

test('an error of the client instead of an answer ends the call with it', async (t) => {
  const { tool } = await setUp(t)
  const channel = new TestChannel()
  const asking = tool('test_input_required_result_sampling', { channel, id: 'mine' })
  await until('the client is asked', () => channel.received.length > 0)
  await channel.received[0]?.answer?.('{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"User said no"}}')
  const outcome = await asking
  assert.ok(outcome.kind === 'answered')
  assert.deepEqual([outcome.result.value.id, outcome.verdict], ['mine', 'rpc_error'])
  assert.match(outcome.result.text, /User said no/)
})

test('changes that the server tells of reach a caller that listens', async (t) => {
  const { upstreamSession, tool, caller } = await setUp(t)
  upstreamSession.listen()
  upstreamSession.listen()
  await tool('test_trigger_tool_change')
  await until('the change is told', () => caller.of('notifications/tools/list_changed').length > 0)
  const [told] = caller.of('notifications/tools/list_changed')
  assert.ok(!told?.text.includes('subscriptionId'))
  assert.equal(caller.received.length, 1)
})

test('a refusal of the server keeps its status', async (t) => {
  const { ask, tool } = await setUp(t, new TestCaller({ initializeParams: { capabilities: {} } }))
  const outcomes = [await ask('no/such_method'), await tool('test_missing_capability')]
  assert.deepEqual(
    outcomes.map((outcome) => outcome.kind === 'answered' && [outcome.result.status, outcome.verdict]),
    [
      [404, 'rpc_error'],
      [400, 'rpc_error'],
    ],
  )
})
