import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { FlakyServer } from './support/flaky.ts'
import { cleanUp, Gateway, type Json } from './support/gateway.ts'
import { RawClient } from './support/raw-client.ts'
import { closeServers, RawServer, sendJson, type Seen } from './support/raw-server.ts'
import { closeClients, connect } from './support/sdk-client.ts'

const INTENT = 'dev.breakwater/intent'

let server: FlakyServer
let gateway: Gateway

before(async () => {
  server = await FlakyServer.start()
  gateway = await Gateway.start({ servers: { flaky: { url: server.url } } })
  await gateway.waitFor('up', 'flaky')
})
after(async () => {
  await closeClients()
  closeServers()
  await cleanUp()
})

const share = (outcome: string, calls: string, source: string) =>
  gateway.metric(
    'breakwater_intent_outcomes_total',
    `outcome="${outcome}",calls="${calls}",source="${source}"`,
  )

test('task outcomes separate failed tasks with a failed call from failed tasks without', async () => {
  const client = await connect(gateway.mcp('flaky'))
  async function run(intent: string): Promise<void> {
    for (const name of ['read', 'write'])
      await client.callTool({ name, arguments: {}, _meta: { [INTENT]: intent } }).catch(() => undefined)
  }
  await run('calm')
  await run('muddled')
  await server.behave({ write: { failing: 1, status: 500 } })
  await run('hit')
  await run('recovered')

  const { status, body } = await gateway.post<Json[]>('/admin/outcomes', [
    { intent: 'calm', outcome: 'succeeded' },
    { intent: 'muddled', outcome: 'failed' },
    { intent: 'hit', outcome: 'failed' },
    { intent: 'recovered', outcome: 'succeeded' },
    { intent: 'hit', outcome: 'failed' },
    { intent: 'made up', outcome: 'failed' },
  ])
  assert.equal(status, 200)
  assert.deepEqual(
    body.map(({ linked, repeated }) => [linked, repeated]),
    [
      [true, false],
      [true, false],
      [true, false],
      [true, false],
      [true, true],
      [false, undefined],
    ],
  )
  const task = { source: 'meta', tenant: 'e2e', arm: '', calls: 2, failed: 1, over: true }
  assert.deepEqual(body[2]?.task, task)
  for (const outcome of ['succeeded', 'failed'])
    for (const calls of ['ok', 'failed'])
      assert.equal(await share(outcome, calls, 'meta'), 1, `${outcome}, calls ${calls}`)
  assert.equal(await gateway.metric('breakwater_intent_outcomes_unlinked_total', 'reason="unknown"'), 1)
  assert.equal(await gateway.metric('breakwater_intents_open'), 0)
})

test("calls without a task name belong to the session's task", async () => {
  await server.behave({})
  const client = await connect(gateway.mcp('flaky'))
  await client.callTool({ name: 'read', arguments: {} })
  const { sessionId } = client.transport as { sessionId?: string }
  const { body } = await gateway.post('/admin/outcomes', { intent: sessionId, outcome: 'succeeded' })
  assert.equal(body.linked, true)
  assert.equal(await share('succeeded', 'ok', 'session'), 1)
})

/** Endings of MCP tasks by id: the answers to requests about each task. */
const endings: Readonly<Record<string, Readonly<Record<string, Json>>>> = {
  good: { 'tasks/get': { result: { status: 'completed' } }, 'tasks/result': { result: { content: [] } } },
  bad: {
    'tasks/get': { result: { status: 'completed' } },
    'tasks/result': { result: { content: [], isError: true } },
  },
  broken: {
    'tasks/get': { result: { status: 'completed' } },
    'tasks/result': { error: { code: -32603, message: 'lost' } },
  },
  failed: { 'tasks/get': { result: { status: 'failed' } } },
  working: { 'tasks/get': { result: { status: 'working' } } },
}

/** A server whose tool runs as a task with the name of the agent's task. */
const startTasks = () =>
  RawServer.start(
    ({ message: { id, method, params } }: Seen, response) => {
      const { taskId = '', _meta } = (params ?? {}) as { taskId?: string; _meta?: Json }
      const reply =
        method === 'tools/call'
          ? { result: { task: { taskId: _meta?.[INTENT], status: 'working', ttl: null } } }
          : endings[taskId]?.[String(method)]
      if (reply === undefined) return false
      sendJson(response, JSON.stringify({ jsonrpc: '2.0', id, ...reply }))
      return undefined
    },
    ['job'],
  )

test('a call that goes on as an MCP task counts by the end of that, for its tool, its agent and its arm', async () => {
  const jobs = await startTasks()
  const stage = await Gateway.start({
    servers: { jobs: { url: jobs.url } },
    experiments: [
      {
        name: 'pairs',
        arms: { control: 'default', treatment: 'default' },
        assignBy: 'intent',
        minimumUnits: 10,
      },
    ],
  })
  await stage.waitFor('up', 'jobs')
  const client = await RawClient.open(stage.mcp('jobs'))
  for (const intent of Object.keys(endings)) {
    await client.request('tools/call', { name: 'job', arguments: {}, task: {}, _meta: { [INTENT]: intent } })
    for (const method of Object.keys(endings[intent]!)) await client.request(method, { taskId: intent })
  }
  const verdicts = { unchecked: 1, tool_error: 2, rpc_error: 1 }
  const sums = (metric: string) => stage.sums(metric, 'verdict', 'server="jobs"')
  assert.deepEqual(await sums('breakwater_tool_call_verdicts_total'), verdicts)
  assert.deepEqual(await sums('breakwater_upstream_attempts_total'), verdicts)
  const samples = await (await fetch(`${stage.control}/admin/experiments/pairs/samples`)).text()
  const rows = samples
    .trim()
    .split('\n')
    .map((row) => row.split(','))
  const sumOf = (column: string) =>
    rows.slice(1).reduce((sum, row) => sum + Number(row[rows[0]!.indexOf(column)]), 0)
  assert.deepEqual(['calls', 'failed', 'under_way'].map(sumOf), [4, 3, 1])
  const reports = Object.keys(endings).map((intent) => ({ intent, outcome: 'succeeded' }))
  const said = (await stage.post<Json[]>('/admin/outcomes', reports)).body
  assert.deepEqual(
    said.map(({ task }) => [(task as Json).failed, (task as Json).over]),
    [
      [0, true],
      [1, true],
      [1, true],
      [1, true],
      [0, false],
    ],
  )
})
