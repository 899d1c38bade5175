import assert from 'node:assert/strict'
import type { ServerResponse } from 'node:http'
import { after, before, test } from 'node:test'
import { setTimeout } from 'node:timers/promises'
import { cleanUp, Gateway, type Json } from './support/gateway.ts'
import { errorOf, ModernClient } from './support/modern-client.ts'
import { RawClient } from './support/raw-client.ts'
import { closeServers, RawServer } from './support/raw-server.ts'

/** Both are much longer than the rest of a call, even on a busy machine. */
const ATTEMPT_MS = 800
const DEADLINE_MS = 1_000
/** The agent's thinking time in milliseconds: longer than both. */
const THINKING_MS = 2_000

const RELATED_TASK = 'io.modelcontextprotocol/related-task'

const elicitation = { elicitation: { form: {} } }
const answer = { action: 'accept', content: { name: 'Ada' } }

let gateway: Gateway

/** Calls waiting for an answer, by the id of the question. */
const pendingInputs = new Map<unknown, { readonly response: ServerResponse; readonly call: Json }>()

const event = (message: Json) => `data: ${JSON.stringify({ jsonrpc: '2.0', ...message })}\n\n`

before(async () => {
  let questions = 0
  const server = await RawServer.start(
    ({ message }, response) => {
      const { id, method, params } = message as { id?: unknown; method?: string; params?: Json }
      if (method === 'tools/call') {
        if (params?.name === 'hung') return true
        const question = ++questions
        const requestedSchema = { type: 'object', properties: { name: { type: 'string' } } }
        response.writeHead(200, { 'content-type': 'text/event-stream' })
        const ofTask =
          params?.name === 'ask_for_task' ? { _meta: { [RELATED_TASK]: { taskId: 'task-1' } } } : {}
        const ask = { message: 'Who?', requestedSchema, ...ofTask }
        response.write(event({ id: question, method: 'elicitation/create', params: ask }))
        pendingInputs.set(question, { response, call: message })
        return true
      }
      const waiting = method === undefined ? pendingInputs.get(id) : undefined
      if (waiting === undefined) return false
      response.writeHead(202).end()
      const { name } = waiting.call.params as Json
      if (name === 'ask_and_hang') return true
      const text = JSON.stringify(message.result)
      waiting.response.end(event({ id: waiting.call.id, result: { content: [{ type: 'text', text }] } }))
      return true
    },
    ['ask', 'ask_for_task', 'ask_and_hang', 'hung'],
  )
  gateway = await Gateway.start({
    servers: { raw: { url: server.url } },
    policies: { defaults: { attemptTimeout: { timeout: ATTEMPT_MS }, deadline: { total: DEADLINE_MS } } },
  })
  await gateway.waitFor('up', 'raw')
})
after(async () => {
  await cleanUp()
  closeServers()
})

/** Calls a tool, and answers its question after the agent's thinking time. */
async function converse(
  client: RawClient,
  name: string,
  headers: Record<string, string> = {},
): Promise<Json> {
  const body = { jsonrpc: '2.0', id: name, method: 'tools/call', params: { name, arguments: {} } }
  const reader = await client.stream(body, headers)
  const question = await reader.next('the question comes', ({ method }) => method === 'elicitation/create')
  await setTimeout(THINKING_MS)
  await client.post({ jsonrpc: '2.0', id: question.id, result: answer })
  return reader.next('the answer comes', ({ id, method }) => id === name && method === undefined)
}

for (const [where, url, name] of [
  ['its own endpoint', () => gateway.mcp('raw'), (tool: string) => tool],
  ['the endpoint of all', () => gateway.mcp(), (tool: string) => `raw__${tool}`],
] as const) {
  test(`while the agent answers a question on ${where}, timeout and deadline stand still`, async () => {
    const talks = [{}, { 'x-breakwater-deadline-ms': '900' }].map(async (headers) =>
      converse(await RawClient.open(url(), { capabilities: elicitation }), name('ask'), headers),
    )
    for (const { result } of await Promise.all(talks)) assert.match(JSON.stringify(result), /Ada/)
  })

  test(`once the agent has answered on ${where}, timeout and deadline continue`, async () => {
    const client = await RawClient.open(url(), { capabilities: elicitation })
    const { error } = await converse(client, name('ask_and_hang'))
    assert.match(String((error as { data: Json }).data.reason), /^(attempt_timeout|deadline_exceeded)$/)
  })

  test(`a call without questions ends in time on ${where}`, async () => {
    const client = await RawClient.open(url(), { capabilities: elicitation })
    const startedAt = performance.now()
    const { error } = await client.call(name('hung'))
    assert.match(String((error as { data: Json }).data.reason), /^(attempt_timeout|deadline_exceeded)$/)
    assert.ok(performance.now() - startedAt < THINKING_MS)
  })

  test(`a client of the modern era may take its time for an answer on ${where}, too`, async () => {
    const client = new ModernClient(url(), elicitation)
    for (const [tool, end] of [
      ['ask', /Ada/],
      ['ask_and_hang', /attempt_timeout|deadline_exceeded/],
    ] as const) {
      const pending = (await client.call(name(tool))).messages[0]?.result as Json
      assert.equal(pending.resultType, 'input_required')
      await setTimeout(THINKING_MS)
      const [key] = Object.keys(pending.inputRequests as Json)
      const more = { requestState: pending.requestState, inputResponses: { [String(key)]: answer } }
      const reply = await client.call(name(tool), {}, more)
      assert.match(JSON.stringify(reply.messages[0]?.result ?? errorOf(reply)), end)
    }
  })

  test(`a question for a task and its answer name the task by the reader's id, on ${where}`, async () => {
    const client = await RawClient.open(url(), { capabilities: elicitation })
    const params = { name: name('ask_for_task'), arguments: {} }
    const reader = await client.stream({ jsonrpc: '2.0', id: 't', method: 'tools/call', params })
    const question = await reader.next('the question comes', ({ method }) => method === 'elicitation/create')
    const { _meta } = question.params as Json
    assert.deepEqual(_meta, { [RELATED_TASK]: { taskId: name('task-1') } })
    await client.post({ jsonrpc: '2.0', id: question.id, result: { ...answer, _meta } })
    const { result } = await reader.next(
      'the call ends',
      ({ id, method }) => id === 't' && method === undefined,
    )
    const heard = JSON.parse(((result as Json).content as Json[])[0]?.text as string) as Json
    assert.deepEqual(heard._meta, { [RELATED_TASK]: { taskId: 'task-1' } })
  })
}
