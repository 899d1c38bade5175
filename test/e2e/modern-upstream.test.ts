import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import type { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { ElicitRequestSchema, ToolListChangedNotificationSchema } from '@modelcontextprotocol/sdk/types.js'
import { startModernServer } from '../fixtures/modern-server.ts'
import { until } from '../support/until.ts'
import { cleanUp, Gateway } from './support/gateway.ts'
import { closeClients, connect, textOf } from './support/sdk-client.ts'

let server: Awaited<ReturnType<typeof startModernServer>>
let gateway: Gateway

before(async () => {
  server = await startModernServer()
  gateway = await Gateway.start({
    servers: { modern: { url: server.url }, pinned: { url: server.url, era: 'modern' } },
  })
  await gateway.waitFor('up', 'modern', 'pinned')
})
after(async () => {
  await closeClients()
  await cleanUp()
  await server.close()
})

const routes = [
  { title: 'its own endpoint', server: 'modern', prefix: '' },
  { title: 'the endpoint of all', server: undefined, prefix: 'modern__' },
]

for (const { title, server: route, prefix } of routes) {
  test(`a client of the legacy era uses a modern server on ${title}`, async () => {
    const client = await connect(gateway.mcp(route))
    const { tools } = await client.listTools()
    assert.ok(tools.some(({ name }) => name === `${prefix}test_simple_text`))
    assert.match(textOf(await client.callTool({ name: `${prefix}test_simple_text` })), /simple text/)
    const steps: number[] = []
    await client.callTool({ name: `${prefix}test_tool_with_progress` }, undefined, {
      onprogress: ({ progress }) => steps.push(progress),
    })
    assert.deepEqual(steps, [0, 50, 100])
  })

  test(`a modern server's questions reach a client of the legacy era on ${title}`, async () => {
    const answering = (client: Client) =>
      client.setRequestHandler(ElicitRequestSchema, () => ({
        action: 'accept',
        content: { name: 'Ada', color: 'red' },
      }))
    const client = await connect(gateway.mcp(route), { elicitation: { form: {} } }, answering)
    const call = async (tool: string) => textOf(await client.callTool({ name: prefix + tool }))
    assert.equal(await call('test_input_required_result_elicitation'), 'Hello, Ada!')
    assert.equal(await call('test_input_required_result_multi_round'), '["Ada","red"]')
  })
}

test("a modern server's changes are told to a client of the legacy era", async () => {
  let told = 0
  const client = await connect(gateway.mcp('modern'), {}, (one) =>
    one.setNotificationHandler(ToolListChangedNotificationSchema, () => void told++),
  )
  await until('a change is told', async () => {
    await client.callTool({ name: 'test_trigger_tool_change' })
    return told > 0
  })
})
