import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { McpRequest } from '../../../src/downstream/endpoint.ts'
import type { Response } from '../../../src/downstream/respond.ts'
import type { GatewayError } from '../../../src/mesh/errors.ts'
import { ownTurn } from '../../../src/mesh/turns.ts'
import { watchWork } from '../../../src/mesh/work.ts'
import { CLIENT_CAPABILITIES_KEY, LOG_LEVEL_KEY } from '../../../src/protocol/versions.ts'
import type { Json } from '../../support/memory-pipe.ts'
import { until } from '../../support/until.ts'
import { testServer } from '../../registry/test-server.ts'
import { headersFor, later, message, modern, reply, result, testModern } from './test-modern.ts'
import { largeMessage } from '../../support/large-message.ts'

const able = { [CLIENT_CAPABILITIES_KEY]: { elicitation: {}, sampling: {} } }

/** Returns a call, or its retry with the members of `more`. */
const call = (id: unknown, more: Json = {}, own: Json = able) =>
  modern(id, 'tools/call', { name: 'ask', arguments: { x: 1 }, ...more }, own)

/** Returns the result of a single-message reply. */
const resultOf = ({ messages }: { messages: Json[] }) => messages[0]?.result as Json
const stateOf = (parked: { messages: Json[] }) => resultOf(parked).requestState

const channelOf = (mcpRequest: McpRequest) => mcpRequest.channelFor('s')

/** Asks the client during a call; resolves to the parsed answer. */
function ask(
  mcpRequest: McpRequest,
  id: number,
  method = 'elicitation/create',
  params: Json | null = { message: 'Who?' },
): Promise<Json> {
  return new Promise((resolve) => {
    const question = message(params === null ? { id, method } : { id, method, params })
    void channelOf(mcpRequest).send(question, (text) => {
      resolve(JSON.parse(text) as Json)
      return Promise.resolve()
    })
  })
}

test('an answer is taken over a reload that changes which headers tell callers apart, and from nobody else', async (t) => {
  const bench = await testModern(t, async (mcpRequest) => {
    const { result: said } = await ask(mcpRequest, 1)
    return result(mcpRequest, JSON.stringify({ content: [], said }))
  })
  const forwarding = (...names: string[]) => {
    const forwardHeaders = Object.fromEntries(names.map((name) => [name, name]))
    return new Map([['s', testServer({ forwardHeaders }).server]])
  }
  const inputResponses = { 'elicitation-1': { action: 'decline' } }
  const headers = (body: Json, user: string) => ({ ...headersFor(body), 'x-user': user })
  for (const [before, after] of [
    [['x-user'], []],
    [[], ['x-user']],
  ] as const) {
    bench.reload(forwarding(...before))
    const first = call(1)
    const parked = await bench.send(first, headers(first, 'ann'))
    bench.reload(forwarding(...after))
    const retry = call(2, { inputResponses, requestState: stateOf(parked) })
    if (before.length > 0) {
      const { messages } = await bench.send(retry, headers(retry, 'bob'))
      assert.match(JSON.stringify(messages), /Unknown, used or expired requestState/)
    }
    assert.deepEqual(resultOf(await bench.send(retry, headers(retry, 'ann'))).said, { action: 'decline' })
  }
})

test('a question in mid-call becomes input_required, and the retry brings the answer', async (t) => {
  const bench = await testModern(t, async (mcpRequest) => {
    const { result: said } = await ask(mcpRequest, 1)
    return result(mcpRequest, JSON.stringify({ content: [], said }))
  })
  const parked = await bench.send(call(1))
  assert.equal(parked.status, 200)
  assert.equal(parked.messages[0]?.id, 1)
  assert.equal(resultOf(parked).resultType, 'input_required')
  assert.deepEqual(resultOf(parked).inputRequests, {
    'elicitation-1': { method: 'elicitation/create', params: { message: 'Who?' } },
  })
  const inputResponses = { 'elicitation-1': { action: 'accept', content: { name: 'Zoë' } } }
  const answered = await bench.send(call('two', { inputResponses, requestState: stateOf(parked) }))
  assert.equal(answered.messages[0]?.id, 'two')
  assert.deepEqual(resultOf(answered).said, inputResponses['elicitation-1'])
  assert.equal(resultOf(answered).resultType, 'complete')
  assert.equal(bench.requests.length, 1)
  await bench.clock.advance(3_000)
  assert.equal(bench.clock.pending, 0)
})

test('questions asked while the call waits for input wait for the next round; those left open are asked again', async (t) => {
  const bench = await testModern(t, async (mcpRequest) => {
    await Promise.all([ask(mcpRequest, 1), ask(mcpRequest, 2, 'sampling/createMessage')])
    return result(mcpRequest, '{"done":true}')
  })
  const first = await bench.send(call(1))
  assert.deepEqual(Object.keys(resultOf(first).inputRequests as Json), ['elicitation-1'])
  const second = await bench.send(call(2, { requestState: stateOf(first) }))
  assert.deepEqual(Object.keys(resultOf(second).inputRequests as Json), ['elicitation-1', 'sampling-2'])
  assert.notEqual(stateOf(second), stateOf(first))
  const inputResponses = {
    'elicitation-1': { action: 'decline' },
    'sampling-2': { role: 'assistant' },
    other: {},
  }
  const last = await bench.send(call(3, { inputResponses, requestState: stateOf(second) }))
  assert.equal(resultOf(last).done, true)
})

test('a question that its server takes back holds the call no longer, and its client still gets the result', async (t) => {
  const questioned = later<void>()
  const bench = await testModern(t, async (mcpRequest) => {
    void ask(mcpRequest, 1)
    await questioned.promise
    const params = { requestId: 1 }
    void channelOf(mcpRequest).send(message({ method: 'notifications/cancelled', params }))
    return result(mcpRequest, JSON.stringify({ asking: mcpRequest.record.asking }))
  })
  const first = await bench.send(call(1))
  assert.equal(bench.requests[0]?.record.asking, 1)
  questioned.resolve()
  const inputResponses = { 'elicitation-1': { action: 'decline' } }
  const last = await bench.send(call(2, { inputResponses, requestState: stateOf(first) }))
  assert.equal(resultOf(last).asking, 0)
})

test('an answer that is no object is refused, and the call waits for another one', async (t) => {
  const bench = await testModern(t, async (mcpRequest) => {
    const { result: said } = await ask(mcpRequest, 1)
    return result(mcpRequest, JSON.stringify({ said }))
  })
  const first = await bench.send(call(1))
  const requestState = stateOf(first)
  for (const inputResponses of ['x', [], { 'elicitation-1': 'x' }, { 'elicitation-1': null }]) {
    const { messages } = await bench.send(call(2, { inputResponses, requestState }))
    assert.match(JSON.stringify(messages), /-32602,"message":"Invalid params: inputResponses/)
  }
  const inputResponses = { 'elicitation-1': { action: 'decline' } }
  const last = await bench.send(call(3, { inputResponses, requestState }))
  assert.deepEqual(resultOf(last).said, inputResponses['elicitation-1'])
})

test('a question without params is asked without params', async (t) => {
  const bench = await testModern(t, async (mcpRequest) => {
    await ask(mcpRequest, 1, 'roots/list', null)
    return result(mcpRequest, '{}')
  })
  const parked = await bench.send(call(1, {}, { [CLIENT_CAPABILITIES_KEY]: { roots: {} } }))
  assert.deepEqual(resultOf(parked).inputRequests, { 'roots-1': { method: 'roots/list' } })
  bench.endpoint.close()
})

test('a server that asks without end is refused after ten rounds', async (t) => {
  const bench = await testModern(t, async (mcpRequest) => {
    let rounds = 0
    for (;;) {
      const { error } = await ask(mcpRequest, rounds)
      if (error !== undefined) return result(mcpRequest, JSON.stringify({ rounds }))
      rounds++
    }
  })
  let last = await bench.send(call(0))
  for (let round = 1; resultOf(last).resultType === 'input_required'; round++) {
    assert.ok(round <= 10, 'more than ten rounds')
    const inputResponses = { [`elicitation-${round}`]: { action: 'accept' } }
    last = await bench.send(call(round, { inputResponses, requestState: stateOf(last) }))
  }
  assert.equal(resultOf(last).rounds, 10)
})

test("questions beyond the client's capabilities are refused without asking the client", async (t) => {
  const answers: Json[] = []
  const bench = await testModern(t, async (mcpRequest) => {
    for (const method of ['elicitation/create', 'tasks/get', 'ping'])
      answers.push(await ask(mcpRequest, 1, method))
    return result(mcpRequest, '{"done":true}')
  })
  assert.equal(resultOf(await bench.send(call(1, {}, {}))).done, true)
  assert.deepEqual(
    answers.map(({ error }) => (error as Json | undefined)?.code),
    [-32021, -32601, undefined],
  )
})

test('progress comes under the token of the turn that waits, also after a retry', async (t) => {
  const bench = await testModern(t, async (mcpRequest) => {
    const { progressToken } = (mcpRequest.message.value.params as { _meta: Json })._meta
    const progress = () =>
      channelOf(mcpRequest).send(
        message({ method: 'notifications/progress', params: { progressToken, progress: 1 } }),
      )
    void progress()
    await ask(mcpRequest, 1)
    await progress()
    return result(mcpRequest, '{}')
  })
  const parked = await bench.send(call(1, {}, { ...able, progressToken: 'first' }))
  assert.equal((parked.messages[0]?.params as Json).progressToken, 'first')
  const requestState = (parked.messages[1]?.result as Json).requestState
  const again = call(
    2,
    { requestState, inputResponses: { 'elicitation-1': {} } },
    { ...able, progressToken: 0 },
  )
  const { messages } = await bench.send(again)
  assert.equal((messages[0]?.params as Json).progressToken, 0)
  assert.equal(messages[1]?.id, 2)
})

test('progress without a token is not passed on', async (t) => {
  const bench = await testModern(t, (mcpRequest) => {
    void channelOf(mcpRequest).send(
      message({ method: 'notifications/progress', params: { progressToken: 'x' } }),
    )
    return '{}'
  })
  assert.equal((await bench.send(call(1))).headers['content-type'], 'application/json')
})

test('messages of the log come down to the level that the request names, and none without', async (t) => {
  const bench = await testModern(t, (mcpRequest) => {
    const levels = mcpRequest.message.value.method === 'tools/call' ? ['debug', 'warning', 'error'] : []
    for (const level of levels) {
      void channelOf(mcpRequest).send(message({ method: 'notifications/message', params: { level } }))
    }
    return '{}'
  })
  const { messages } = await bench.send(call(1, {}, { [LOG_LEVEL_KEY]: 'warning' }))
  assert.deepEqual(
    messages.map(({ id, params }) => id ?? (params as Json).level),
    ['warning', 'error', 1],
  )
  assert.equal((await bench.send(call(2))).messages.length, 1)
  const levels = bench.requests.filter(({ message: { value } }) => value.method === 'logging/setLevel')
  assert.equal(levels.length, 1)
})

test('a log level that one client takes back by leaving is asked for again by the next', async (t) => {
  const isLevel = ({ message: { value } }: McpRequest) => value.method === 'logging/setLevel'
  const bench = await testModern(t, (mcpRequest) => {
    if (!isLevel(mcpRequest) || bench.requests.filter(isLevel).length > 1) return '{}'
    return new Promise((resolve) => {
      mcpRequest.signal.addEventListener('abort', () => resolve(result(mcpRequest, '{}')))
    })
  })
  const wanting = (id: number) => call(id, {}, { [LOG_LEVEL_KEY]: 'warning' })
  const client = await bench.open(wanting(1))
  await until('the level is asked for', () => bench.requests.length === 1)
  client.close()
  await until('the request for a level is cancelled', () => bench.requests[0]!.signal.aborted)
  for (const id of [2, 3]) await bench.send(wanting(id))
  assert.equal(bench.requests.filter(isLevel).length, 2)
})

test('a call whose agent was asked has been sent something, so that it is not tried again', async (t) => {
  const bench = await testModern(t, async (mcpRequest) => {
    await ask(mcpRequest, 1)
    return result(mcpRequest, '{}')
  })
  await bench.send(call(1))
  assert.notEqual(bench.requests[0]?.record.firstByteAt, undefined)
  await bench.send(call(2, {}, { [CLIENT_CAPABILITIES_KEY]: {} }))
  assert.equal(bench.requests[1]?.record.firstByteAt, undefined)
})

test('a client that leaves cancels its call', async (t) => {
  const bench = await testModern(t, () => new Promise<Response>(() => undefined))
  const client = await bench.open(call(1))
  await until('the call is under way', () => bench.requests.length === 1)
  client.close()
  const { signal } = bench.requests[0]!
  await until('the call is cancelled', () => signal.aborted)
  assert.equal((signal.reason as GatewayError).reason, 'cancelled')
})

test('a client that is gone while its call waits for input cancels nothing, and finds the answer later', async (t) => {
  const end = later<void>()
  const bench = await testModern(t, (mcpRequest) => {
    void ask(mcpRequest, 1)
    return end.promise.then(() => result(mcpRequest, '{"late":true}'))
  })
  const client = await bench.open(call(1))
  const parked = await reply(client)
  client.close()
  assert.equal(bench.requests[0]?.signal.aborted, false)
  end.resolve()
  await bench.clock.advance(0)
  const answered = await bench.send(call(2, { requestState: stateOf(parked) }))
  assert.equal(resultOf(answered).late, true)
  assert.equal(answered.messages[0]?.id, 2)
})

test('an answer that is too much to be kept is gone when its client comes, which hears that the call has run', async (t) => {
  const end = later<void>()
  const large = JSON.stringify({ text: 'x'.repeat(20 * 1024 ** 2) })
  const bench = await testModern(t, (mcpRequest) => {
    void ask(mcpRequest, 1)
    mcpRequest.record.attempts = 1
    return end.promise.then(() => result(mcpRequest, large))
  })
  const parked = [await bench.send(call(1)), await bench.send(call(2))]
  end.resolve()
  await bench.clock.advance(0)
  // Large answers end in turns of their client, in order.
  await ownTurn('127.0.0.1')
  const answers: Json[] = []
  for (const [index, first] of parked.entries()) {
    const { messages } = await bench.send(call(`again ${index}`, { requestState: stateOf(first) }))
    answers.push(messages[0] ?? {})
  }
  assert.equal(((answers[0]?.result as Json).text as string).length, 20 * 1024 ** 2)
  const { id, error } = answers[1] as { id: unknown; error: { message: string; data: Json } }
  assert.equal(id, 'again 1')
  assert.match(error.message, /the call has run, .*\(limit 33554432, gateway\.limits\.perClient\)/)
  assert.deepEqual([error.data.reason, error.data.sent, error.data.attempts], ['overloaded', true, 1])
})

test('a call of a very long name is found again by the same name only', async (t) => {
  const bench = await testModern(t, async (mcpRequest) => {
    await ask(mcpRequest, 1)
    return result(mcpRequest, '{"done":true}')
  })
  const name = 'x'.repeat(5_000)
  const requestState = stateOf(await bench.send(call(1, { name })))
  const more = { requestState, inputResponses: { 'elicitation-1': {} } }
  const { messages } = await bench.send(call(2, { ...more, name: `${name}y` }))
  assert.equal((messages[0]?.error as Json).code, -32602)
  assert.equal(resultOf(await bench.send(call(3, { ...more, name }))).done, true)
})

test('a state counts once, for the same request of the same kind of client', async (t) => {
  const bench = await testModern(t, async (mcpRequest) => {
    await ask(mcpRequest, 1)
    return result(mcpRequest, '{"done":true}')
  })
  const requestState = stateOf(await bench.send(call(1)))
  const inputResponses = { 'elicitation-1': {} }
  const refused = async (body: Json) => {
    const { status, messages } = await bench.send(body)
    const { code, data } = messages[0]?.error as Json
    assert.deepEqual([status, code, data], [200, -32602, { reason: 'invalid_request_state' }])
  }
  await refused(call(2, { requestState: `${String(requestState)}-TAMPERED`, inputResponses }))
  await refused(call(3, { requestState, inputResponses, name: 'other' }))
  await refused(call(4, { requestState, inputResponses }, {}))
  assert.equal(resultOf(await bench.send(call(5, { requestState, inputResponses }))).done, true)
  await refused(call(6, { requestState, inputResponses }))
})

test('foreign states and answers go to the server unchanged', async (t) => {
  const bench = await testModern(t)
  for (const requestState of ['v1.eyJ', 12345, null])
    await bench.send(call(1, { requestState, inputResponses: null }))
  const seen = bench.requests.map(({ message: { value } }) => (value.params as Json).requestState)
  assert.deepEqual(seen, ['v1.eyJ', 12345, null])
})

test('a large message is made text in a separate turn where its text is needed, as for an error', async (t) => {
  let said = ''
  const bench = await testModern(t, ({ message: { value } }) => {
    return Promise.resolve(largeMessage(`{"id":${JSON.stringify(value.id)},${said}}`))
  })
  let turns = 0
  t.after(watchWork({ now: () => 0, worked: (work) => void (work === 'reply' && turns++) }))
  const long = 'x'.repeat(100_000)
  for (const [text, expected] of [
    [`"result":{"text":"${long}"}`, 0],
    [`"error":{"code":-32603,"message":"${long}"}`, 1],
  ] as const) {
    said = text
    turns = 0
    const { messages } = await bench.send(call(1))
    assert.equal(messages.length, 1)
    assert.equal(turns, expected)
  }
})
