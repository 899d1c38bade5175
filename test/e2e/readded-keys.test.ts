import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { until } from '../support/until.ts'
import { FlakyServer } from './support/flaky.ts'
import { cleanUp, Gateway } from './support/gateway.ts'
import { keyedWrite } from './support/keyed-write.ts'

after(cleanUp)

test('a server that is removed and added again through the API finds its keys: of calls that are over, and under way', async () => {
  const server = await FlakyServer.start()
  const gateway = await Gateway.start({ servers: {} })
  const add = async () => {
    assert.equal(
      (await gateway.post('/admin/servers', { name: 'guest', server: { url: server.url } })).status,
      201,
    )
    await gateway.waitFor('up', 'guest')
  }
  await add()
  const answer = await keyedWrite(gateway.mcp('guest'), 'over')
  assert.match(JSON.stringify(answer?.result), /written/)
  await server.behave({ write: { delayMs: 1_500 } })
  const underWay = keyedWrite(gateway.mcp('guest'), 'under-way')
  await until('the server has the call', async () => (await server.count('write')) === 2)

  assert.equal((await gateway.admin('/admin/servers/guest', { method: 'DELETE' })).status, 200)
  await add()
  assert.deepEqual((await keyedWrite(gateway.mcp('guest'), 'over'))?.result, answer?.result)
  await keyedWrite(gateway.mcp('guest'), 'under-way')
  await underWay
  assert.equal(await server.count('write'), 2)
})
