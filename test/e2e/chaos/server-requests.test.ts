import assert from 'node:assert/strict'
import type { ServerResponse } from 'node:http'
import { after, before, test } from 'node:test'
import { cleanUp, Gateway, type Json } from '../support/gateway.ts'
import { RawClient } from '../support/raw-client.ts'
import { closeServers, RawServer } from '../support/raw-server.ts'

/** Each fault has a tool of its own; `whole` has none. */
const faults: Readonly<Record<string, Json>> = {
  unasked: { lost: 'request' },
  unheard: { lost: 'answer' },
  sampled: { lost: 'request', ask: 'sampling/createMessage' },
}

/** Longer than a question takes to the agent, on a busy machine too. */
const ATTEMPT_MS = 2_000
const elicitation = { elicitation: { form: {} } }

let gateway: Gateway
/** Answers that the server got, by the tool that asked. */
const answers: string[] = []

before(async () => {
  const asking = new Map<unknown, { readonly response: ServerResponse; readonly call: Json }>()
  const server = await RawServer.start(
    ({ message }, response) => {
      const { id, method } = message
      if (method === 'tools/call') {
        const question = asking.size + 1
        asking.set(question, { response, call: message })
        const requestedSchema = { type: 'object', properties: { name: { type: 'string' } } }
        const ask = { jsonrpc: '2.0', id: question, method: 'elicitation/create' }
        response.writeHead(200, { 'content-type': 'text/event-stream' })
        response.write(
          `data: ${JSON.stringify({ ...ask, params: { message: 'Who?', requestedSchema } })}\n\n`,
        )
        return true
      }
      const waiting = method === undefined ? asking.get(id) : undefined
      if (waiting === undefined) return false
      response.writeHead(202).end()
      answers.push(String((waiting.call.params as Json).name))
      const result = { content: [{ type: 'text', text: JSON.stringify(message.result) }] }
      waiting.response.end(`data: ${JSON.stringify({ jsonrpc: '2.0', id: waiting.call.id, result })}\n\n`)
      return true
    },
    ['whole', ...Object.keys(faults)],
  )
  gateway = await Gateway.start({
    gateway: { environment: 'test' },
    servers: { raw: { url: server.url, era: 'legacy' } },
    policies: {
      defaults: { retry: false },
      overrides: ['unasked', 'unheard'].map((tool) => ({
        match: { tool },
        attemptTimeout: { timeout: ATTEMPT_MS },
      })),
    },
    chaos: {
      enabled: true,
      persist: true,
      faults: Object.entries(faults).map(([tool, more]) => ({
        name: tool,
        type: 'server_request.unanswered',
        rate: 1,
        ttl: '10m',
        allowWrites: true,
        match: { tool },
        ...more,
      })),
    },
  })
  await gateway.waitFor('up', 'raw')
})
after(async () => {
  await cleanUp()
  closeServers()
})

/** Calls a tool, answers what it is asked, and gives the response with how often that was. */
async function converse(name: string): Promise<{ readonly asked: number; readonly response: Json }> {
  const client = await RawClient.open(gateway.mcp('raw'), { capabilities: elicitation })
  const body = { jsonrpc: '2.0', id: name, method: 'tools/call', params: { name, arguments: {} } }
  const headers = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' }
  const reply = await fetch(client.url, {
    method: 'POST',
    body: JSON.stringify(body),
    headers: { ...headers, ...client.headers },
  })
  const seen = new Set<unknown>()
  let text = ''
  // JSON when nothing came before the response, or a stream of events.
  for await (const chunk of reply.body ?? []) {
    text += Buffer.from(chunk as Uint8Array).toString()
    for (const { id, method } of messagesIn(text)) {
      if (method !== 'elicitation/create' || seen.has(id)) continue
      seen.add(id)
      await client.post({ jsonrpc: '2.0', id, result: { action: 'accept', content: { name: 'Ada' } } })
    }
  }
  const response = messagesIn(text).find(({ id, method }) => id === name && method === undefined)
  return { asked: seen.size, response: response ?? {} }
}

const messagesIn = (text: string): Json[] =>
  text
    .split('\n')
    .map((line) => line.replace(/^data: /, ''))
    .filter((line) => line.startsWith('{') && line.endsWith('}'))
    .map((line) => JSON.parse(line) as Json)

const reasonOf = ({ response }: { readonly response: Json }) =>
  ((response.error as Json | undefined)?.data as Json | undefined)?.reason

test('without a fault the question is asked and its answer gets through', async () => {
  const { asked, response } = await converse('whole')
  assert.equal(asked, 1)
  assert.match(JSON.stringify(response.result), /Ada/)
})

test('a question that is lost never reaches the agent, and the attempt times out', async () => {
  const got = await converse('unasked')
  assert.deepEqual([got.asked, reasonOf(got)], [0, 'attempt_timeout'])
})

test('an answer that is lost was given in vain, and the attempt times out', async () => {
  const got = await converse('unheard')
  assert.deepEqual([got.asked, reasonOf(got)], [1, 'attempt_timeout'])
})

test('questions of other kinds pass', async () => {
  const { asked, response } = await converse('sampled')
  assert.equal(asked, 1)
  assert.match(JSON.stringify(response.result), /Ada/)
  assert.deepEqual(answers, ['whole', 'sampled'])
})
