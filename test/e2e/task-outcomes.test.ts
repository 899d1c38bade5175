import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { FlakyServer } from './support/flaky.ts'
import { cleanUp, Gateway, type Json } from './support/gateway.ts'
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
  await cleanUp()
})

const share = (outcome: string, calls: string, source: string) =>
  gateway.metric(
    'breakwater_intent_outcomes_total',
    `outcome="${outcome}",calls="${calls}",source="${source}"`,
  )

test('of tasks that failed, those that met a failed call are told from those that did not', async () => {
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

test('a task whose agent names none is that of its session', async () => {
  await server.behave({})
  const client = await connect(gateway.mcp('flaky'))
  await client.callTool({ name: 'read', arguments: {} })
  const { sessionId } = client.transport as { sessionId?: string }
  const { body } = await gateway.post('/admin/outcomes', { intent: sessionId, outcome: 'succeeded' })
  assert.equal(body.linked, true)
  assert.equal(await share('succeeded', 'ok', 'session'), 1)
})
