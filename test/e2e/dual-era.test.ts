import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import {
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  LoggingMessageNotificationSchema,
} from '@modelcontextprotocol/sdk/types.js'
import { startDualServer } from '../fixtures/dual-server.ts'
import { startModernServer } from '../fixtures/modern-server.ts'
import { until } from '../support/until.ts'
import { cleanUp, Gateway, type Json } from './support/gateway.ts'
import { ModernClient } from './support/modern-client.ts'
import { closeClients, connect, textOf } from './support/sdk-client.ts'

let dual: Awaited<ReturnType<typeof startDualServer>>
let modern: Awaited<ReturnType<typeof startModernServer>>
let gateway: Gateway

before(async () => {
  dual = await startDualServer()
  modern = await startModernServer()
  gateway = await Gateway.start({ servers: { dual: { url: dual.url }, modern: { url: modern.url } } })
  await gateway.waitFor('up', 'dual', 'modern')
})
after(async () => {
  await closeClients()
  await cleanUp()
  await Promise.all([dual.close(), modern.close()])
})

const routes = [
  { title: 'its own endpoint', server: 'dual', prefix: '' },
  { title: 'the endpoint of all', server: undefined, prefix: 'dual__' },
]

const name = { action: 'accept', content: { name: 'Ada' } }

for (const { title, server, prefix } of routes) {
  test(`each client of a server of both eras has all of its own era at the same time, on ${title}`, async () => {
    const recent = new ModernClient(gateway.mcp(server), { elicitation: { form: {} } })
    const asks = { name: `${prefix}test_input_required_result_elicitation` }
    const resultOf = async (params: Json) =>
      (await recent.ask('tools/call', params)).messages.at(-1)?.result as Json
    const pending = await resultOf(asks)
    assert.equal(pending.resultType, 'input_required')

    const logged: unknown[] = []
    const capabilities = { sampling: {}, elicitation: { form: {} } }
    const client = await connect(gateway.mcp(server), capabilities, (one) => {
      one.setRequestHandler(CreateMessageRequestSchema, async () => {
        // The modern client gets its answer while the legacy client is being asked.
        const [key] = Object.keys(pending.inputRequests as Json)
        const answers = { requestState: pending.requestState, inputResponses: { [String(key)]: name } }
        const { content } = await resultOf({ ...asks, ...answers })
        const [{ text }] = content as [{ text: string }]
        return { role: 'assistant', model: 'm', content: { type: 'text', text } }
      })
      one.setRequestHandler(ElicitRequestSchema, () => ({
        action: 'accept',
        content: { username: 'Ada', email: 'a@b.c' },
      }))
      one.setNotificationHandler(
        LoggingMessageNotificationSchema,
        ({ params }) => void logged.push(params.data),
      )
    })
    // Calls in an era find the tools listed in this era.
    const { tools } = await client.listTools()
    const listed = await recent.ask('tools/list')
    const ofModern = (listed.messages.at(-1)?.result as { tools: { name: string }[] }).tools
    const names = (all: readonly { name: string }[]) => all.map((tool) => tool.name)
    assert.ok(names(tools).includes(`${prefix}test_sampling`) && !names(tools).includes(asks.name))
    assert.ok(!names(ofModern).includes(`${prefix}test_sampling`) && names(ofModern).includes(asks.name))
    const call = async (tool: string, args: Json = {}) =>
      textOf(await client.callTool({ name: prefix + tool, arguments: args }))
    assert.match(await call('test_sampling', { prompt: 'Who?' }), /Hello, Ada!/)
    assert.match(await call('test_elicitation', { message: 'Who?' }), /action=accept.*Ada/)
    await client.setLoggingLevel('error')
    await call('test_tool_with_logging')
    assert.deepEqual(logged, [])
    await client.setLoggingLevel('info')
    await call('test_tool_with_logging')
    await until('three messages are logged', () => logged.length === 3)
    assert.match(await call('test_reconnection'), /./)
    const uri = server === undefined ? 'breakwater://dual/test://watched-resource' : 'test://watched-resource'
    await client.subscribeResource({ uri })
  })
}

test('an operator sees the eras of a server, and a server of one era is asked for the other era once', async () => {
  const clients = await Promise.all([1, 2, 3].map(() => connect(gateway.mcp('modern'))))
  for (const client of clients) assert.ok((await client.listTools()).tools.length > 0)
  const spoken = async (server: string) => {
    const [eras] = (await gateway.server(server))?.era as Record<string, { speaks: boolean }>[]
    return [eras?.legacy?.speaks, eras?.modern?.speaks]
  }
  assert.deepEqual(
    [await spoken('dual'), await spoken('modern')],
    [
      [true, true],
      [false, true],
    ],
  )
})

test('an era that the config names is the only one for all clients', async () => {
  const before = dual.initializes()
  const pinned = await Gateway.start({
    servers: { m: { url: dual.url, era: 'modern' }, l: { url: dual.url, era: 'legacy' } },
  })
  await pinned.waitFor('up', 'm')
  await connect(pinned.mcp('m'))
  await pinned.waitFor('up', 'l')
  const ofDiscovery = 1
  assert.equal(dual.initializes() - before, ofDiscovery)
  const parked = await new ModernClient(pinned.mcp('l'), { sampling: {} }).call('test_sampling', {
    prompt: '?',
  })
  assert.equal((parked.messages.at(-1)?.result as Json).resultType, 'input_required')
})
