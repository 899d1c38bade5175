import assert from 'node:assert/strict'
import type { ServerResponse } from 'node:http'
import { after, before, test } from 'node:test'
import { until } from '../support/until.ts'
import { cleanUp, Gateway, type Json } from './support/gateway.ts'
import { errorOf, ModernClient } from './support/modern-client.ts'
import { RawClient } from './support/raw-client.ts'
import { closeServers, RawServer, sendJson, type Seen, sendResult } from './support/raw-server.ts'
import { closeClients, connect, textOf as toolText } from './support/sdk-client.ts'

const KEY = 'dev.breakwater/deadline-ms'
const HEADER = 'x-breakwater-deadline-ms'

/** Time the gateway keeps back for the reply, in milliseconds. */
const RESERVE_MS = 50

/** Deadline of calls that report progress, in milliseconds. */
const STEADY_MS = 3_000

/** Open session streams, for messages outside calls. */
const standing = new Set<ServerResponse>()

function openStream(response: ServerResponse): true {
  response.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders()
  return true
}

const event = (stream: ServerResponse, body: Json) =>
  stream.write(`data: ${JSON.stringify({ jsonrpc: '2.0', ...body })}\n\n`)

/** Reports progress over `streams` beyond the call's deadline, and then answers the call. */
function reportSteadily(
  { id, params }: Json,
  response: ServerResponse,
  streams: Iterable<ServerResponse>,
): true {
  const { progressToken } = (params as { _meta: Json })._meta
  const startedAt = performance.now()
  let progress = 0
  const timer = setInterval(() => {
    const told = { method: 'notifications/progress', params: { progressToken, progress: ++progress } }
    for (const stream of streams) event(stream, told)
    if (performance.now() - startedAt < STEADY_MS + 1_000) return
    clearInterval(timer)
    const answer = { id, result: { content: [{ type: 'text', text: 'done' }] } }
    if (response.headersSent) event(response, answer)
    else sendJson(response, JSON.stringify({ jsonrpc: '2.0', ...answer }))
    response.end()
  }, 100)
  return true
}

let server: RawServer
let gateway: Gateway

before(async () => {
  server = await RawServer.start(
    ({ verb, message }, response) => {
      if (verb === 'GET') {
        standing.add(response)
        response.on('close', () => standing.delete(response))
        return openStream(response)
      }
      if (message.method !== 'tools/call') return false
      if ((message.params as Json).name === 'hung') return true
      if ((message.params as Json).name === 'steady-apart') return reportSteadily(message, response, standing)
      if ((message.params as Json).name === 'steady')
        return openStream(response) && reportSteadily(message, response, [response])
      const result = { content: [{ type: 'text', text: 'ok' }] }
      return sendResult(response, message.id, result)
    },
    ['quick', 'hung', 'steady', 'steady-apart'],
  )
  const deadline = { total: `${STEADY_MS}ms`, onProgress: 'extend' }
  const extended = { match: { tool: 'steady*' }, deadline, attemptTimeout: { timeout: `${STEADY_MS}ms` } }
  gateway = await Gateway.start({
    servers: { raw: { url: server.url } },
    policies: { overrides: [extended] },
  })
  await gateway.waitFor('up', 'raw')
})
after(async () => {
  await closeClients()
  await cleanUp()
  closeServers()
})

const textOf = (tool: string, meta = '', id = '1') =>
  `{ "jsonrpc":"2.0", "id":${id}, "method":"tools/call","params":{${meta}"name":"${tool}","arguments":{"x":1.0}}}`

const lastCall = () => server.of('tools/call').at(-1) as Seen

/** Returns the deadline the server got last, in milliseconds; checks that the bytes around it are the agent's. */
function told({ text, message }: Seen): number {
  const meta = (message.params as { _meta: Json })._meta
  assert.match(text, new RegExp(`"${KEY}": ?${String(meta[KEY])} ?[,}]`))
  assert.ok(text.includes('"arguments":{"x":1.0}'))
  return Number(meta[KEY])
}

function assertReduced(ms: number, from: number): void {
  assert.ok(Number.isInteger(ms) && ms <= from - RESERVE_MS && ms > from - 2_000, `${ms} of ${from} ms`)
}

test('a call without a deadline reaches the server byte by byte', async () => {
  const client = await RawClient.open(gateway.mcp('raw'))
  for (const text of [textOf('quick'), textOf('quick', '"_meta":{ "a":1E2 },')]) {
    await client.post(text)
    assert.equal(lastCall().text, text)
    assert.equal(lastCall().headers[HEADER], undefined)
  }
})

test('the deadline of a header reaches the server in _meta, reduced by the time passed', async () => {
  const client = await RawClient.open(gateway.mcp('raw'))
  await client.post(textOf('quick'), { [HEADER]: '5000' })
  assertReduced(told(lastCall()), 5_000)
  const own = textOf('quick', '"_meta":{ "a":1E2 },')
  await client.post(own, { 'grpc-timeout': '6S' })
  assertReduced(told(lastCall()), 6_000)
  assert.equal(
    lastCall()
      .text.replace(new RegExp(`"${KEY}":\\d+,? ?`), '')
      .replaceAll(' ', ''),
    own.replaceAll(' ', ''),
  )
})

test('the deadline in _meta is reduced in place, and the earliest of all counts', async () => {
  const client = await RawClient.open(gateway.mcp('raw'))
  const text = textOf('quick', `"_meta":{ "a":1E2, "${KEY}": 7000 },`)
  await client.post(text)
  const ms = told(lastCall())
  assertReduced(ms, 7_000)
  assert.equal(lastCall().text, text.replace('7000', String(ms)))
  await client.post(text, { [HEADER]: '4000' })
  assertReduced(told(lastCall()), 4_000)
  await client.post(text, { [HEADER]: '99999' })
  assertReduced(told(lastCall()), 7_000)
})

test('an agent may ask for less time than the operator grants, not for more', async () => {
  const client = await RawClient.open(gateway.mcp('raw'))
  await client.post(textOf('quick'), { [HEADER]: '3600000' })
  assertReduced(told(lastCall()), 55_000)
})

test('a hung call ends at its deadline, and the server is told to cancel it', async () => {
  for (const url of [gateway.mcp('raw'), gateway.mcp()]) {
    const client = await RawClient.open(url)
    const id = JSON.stringify(`hung at ${url}`)
    const startedAt = performance.now()
    const { messages } = await client.post(textOf(url === gateway.mcp() ? 'raw__hung' : 'hung', '', id), {
      [HEADER]: '300',
    })
    const tookMs = performance.now() - startedAt
    const { code, data } = messages[0]?.error as { code: number; data: Json }
    assert.deepEqual([code, data.reason, data.sent], [1504, 'deadline_exceeded', true])
    assert.ok(tookMs >= 290 && tookMs < 5_000, `${tookMs} ms`)
    await until('the server is told', () =>
      server
        .of('notifications/cancelled')
        .some(({ message }) => JSON.stringify((message.params as Json).requestId) === id),
    )
  }
})

test('a client of the modern era has a deadline as well', async () => {
  const client = new ModernClient(gateway.mcp('raw'))
  const request = (name: string) => client.request('tools/call', { name, arguments: { x: 1 } })
  await client.post(request('quick'), { [HEADER]: '5000' })
  assertReduced(Number((lastCall().message.params as { _meta: Json })._meta[KEY]), 5_000)
  const cancelled = server.of('notifications/cancelled').length
  const reply = await client.post(request('hung'), { [HEADER]: '300' })
  assert.equal(errorOf(reply).data.reason, 'deadline_exceeded')
  await until('the server is told', () => server.of('notifications/cancelled').length > cancelled)
})

for (const [where, name] of [
  ['in its own stream', 'steady'],
  ["in its session's stream", 'steady-apart'],
] as const)
  test(`a call that goes on reporting progress ${where} outlasts its deadline and the timeout of its attempt`, async () => {
    const client = await connect(gateway.mcp('raw'))
    let told = 0
    const onprogress = () => void told++
    const options = { onprogress, resetTimeoutOnProgress: true }
    const result = await client.callTool({ name, arguments: {} }, undefined, options)
    assert.equal(toolText(result), 'done')
    assert.ok(told > 1)
  })

test('the result of a task is waited for as long as a call of the tool that made the task', async () => {
  const held: (() => void)[] = []
  const tasks = await RawServer.start(
    ({ message: { id, method, params } }, response) => {
      const answer = (result: Json) => sendResult(response, id, result)
      if (method === 'tools/call') answer({ task: { taskId: 'known', status: 'working', ttl: null } })
      else if (method !== 'tasks/result') return false
      else if ((params as Json).taskId === 'known') held.push(() => answer({ content: [] }))
      return true
    },
    ['job'],
  )
  const stage = await Gateway.start({
    servers: { jobs: { url: tasks.url } },
    policies: {
      defaults: { deadline: { total: '500ms' } },
      overrides: [{ match: { server: 'jobs', tool: 'job' }, deadline: { total: '10m' } }],
    },
  })
  await stage.waitFor('up', 'jobs')
  const client = await RawClient.open(stage.mcp('jobs'))
  await client.request('tools/call', { name: 'job', arguments: {}, task: {} })
  const known = client.request('tasks/result', { taskId: 'known' })
  await until('the server has the request', () => held.length > 0)
  const unknown = await client.request('tasks/result', { taskId: 'unknown' })
  assert.equal((unknown.error as Json).code, 1504)
  held.forEach((answer) => answer())
  assert.deepEqual((await known).result, { content: [] })
})
