import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { McpError } from '@modelcontextprotocol/sdk/types.js'
import { FlakyServer } from './support/flaky.ts'
import { cleanUp, Gateway, type Json } from './support/gateway.ts'
import { ModernClient } from './support/modern-client.ts'
import { closeClients, connect, textOf } from './support/sdk-client.ts'

const ERROR = 'dev.breakwater/error'

let server: FlakyServer
let gateway: Gateway

before(async () => {
  server = await FlakyServer.start()
  const { url } = server
  gateway = await Gateway.start({
    servers: { gentle: { url, deliver: 'tool_result' }, plain: { url } },
    policies: {
      defaults: { retry: false, breaker: {} },
      overrides: ['read', 'typed'].map((tool) => ({ match: { tool }, attemptTimeout: { timeout: 200 } })),
    },
  })
  await gateway.waitFor('up', 'gentle', 'plain')
  await server.behave({ read: { hang: true }, typed: { hang: true } })
})
after(async () => {
  await closeClients()
  await cleanUp()
})

for (const [where, url, prefix] of [
  ['its own endpoint', () => gateway.mcp('gentle'), ''],
  ['the endpoint of all', () => gateway.mcp(), 'gentle__'],
] as const) {
  test(`a client of the SDK gets a failure as a result that a model can read on ${where}`, async () => {
    const client = await connect(url())
    // From now on the client checks structured content against the schemas.
    await client.listTools()
    // The write also opens the session at the server, so later attempts do not wait for it.
    assert.match(textOf(await client.callTool({ name: `${prefix}write`, arguments: {} })), /^written/)
    for (const tool of ['read', 'typed']) {
      const result = await client.callTool({ name: prefix + tool, arguments: {} })
      assert.equal(result.isError, true)
      assert.equal(
        textOf(result),
        `The gateway could not get an answer from gentle/${tool}: no answer within 200ms. The call may have run. ` +
          'First check whether it has run: calling again may do it twice.',
      )
      assert.deepEqual(result._meta?.[ERROR], {
        code: 'BW_ATTEMPT_TIMEOUT',
        reason: 'attempt_timeout',
        server: 'gentle',
        tool,
        retryable: false,
        attempts: 1,
        sent: true,
      })
    }
  })
}

test('a modern client gets a failure as a result too', async () => {
  const { messages } = await new ModernClient(gateway.mcp('gentle')).call('read')
  const { isError, content, _meta } = messages[0]?.result as {
    isError: boolean
    content: { text: string }[]
    _meta: Record<string, Json>
  }
  assert.equal(isError, true)
  assert.match(content[0]?.text ?? '', /^The gateway could not get an answer from gentle\/read/)
  assert.equal(_meta[ERROR]?.reason, 'attempt_timeout')
})

test('a rejection names the policy and the time to retry', async () => {
  assert.equal((await gateway.post('/admin/breakers/gentle/read', { action: 'open' })).status, 200)
  const result = await (await connect(gateway.mcp('gentle'))).callTool({ name: 'read', arguments: {} })
  assert.match(textOf(result), /breaker open for gentle\/read .*The call was not sent\. Try again later\.$/)
  const { by, reason, sent } = (result._meta?.[ERROR] ?? {}) as Json
  assert.deepEqual([by, reason, sent], ['breaker', 'breaker_open', false])
})

test('by default, failures are protocol errors', async () => {
  const client = await connect(gateway.mcp('plain'))
  const failed = await client.callTool({ name: 'read', arguments: {} }).catch((error: unknown) => error)
  assert.ok(failed instanceof McpError)
  assert.equal(failed.code, 1504)
  assert.equal((failed.data as Json).reason, 'attempt_timeout')
})
