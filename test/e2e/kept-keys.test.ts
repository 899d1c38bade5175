import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { FlakyServer } from './support/flaky.ts'
import { cleanUp, Gateway, type GatewayParts } from './support/gateway.ts'
import { dataOf, keyedWrite } from './support/keyed-write.ts'

let server: FlakyServer

before(async () => {
  server = await FlakyServer.start()
})
after(cleanUp)

test('keys outlive a reload that makes their server anew and changes their policy', async () => {
  const parts = (more: object, window: string): GatewayParts => ({
    servers: { flaky: { url: server.url, ...more } },
    policies: { defaults: { idempotency: { window } } },
  })
  const gateway = await Gateway.start(parts({}, '5m'))
  await gateway.waitFor('up', 'flaky')
  const count = await server.count('write')
  const answer = await keyedWrite(gateway.mcp('flaky'), 'order-1')
  await gateway.reconfigure(parts({ trusted: true }, '6m'))
  assert.equal((await gateway.post('/admin/reload')).status, 200)
  await gateway.waitFor('up', 'flaky')
  assert.deepEqual((await keyedWrite(gateway.mcp('flaky'), 'order-1'))?.result, answer?.result)
  assert.equal(await server.count('write'), count + 1)
})

test('replies that only look like a refusal keep the key: the write runs once, and every caller hears that it may have run', async () => {
  const gateway = await Gateway.start({
    servers: { flaky: { url: server.url } },
    policies: { defaults: { breaker: false, retry: false } },
  })
  await gateway.waitFor('up', 'flaky')
  for (const status of [400, 404, 409, 503]) {
    const count = await server.count('write')
    await server.behave({ write: { failing: 1, status } })
    for (let n = 0; n < 3; n++) {
      const response = await keyedWrite(gateway.mcp('flaky'), `order-${status}`)
      assert.equal(dataOf(response).sent, true, String(status))
    }
    assert.equal(await server.count('write'), count + 1, String(status))
  }
  for (const status of [401, 429]) {
    const count = await server.count('write')
    await server.behave({ write: { failing: 1, status } })
    for (let n = 0; n < 2; n++) await keyedWrite(gateway.mcp('flaky'), `order-${status}`)
    assert.equal(await server.count('write'), count + 2, String(status))
  }
  await server.behave({ write: { failing: 0 } })
  for (const status of [401, 429])
    assert.match(JSON.stringify(await keyedWrite(gateway.mcp('flaky'), `order-${status}`)), /written/)
})
