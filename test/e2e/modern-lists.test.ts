import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { SUBSCRIPTION_ID_KEY } from '../../src/protocol/versions.ts'
import { discovered, events, json, modernServer } from '../support/modern.ts'
import { until } from '../support/until.ts'
import { cleanUp, Gateway, type Json } from './support/gateway.ts'
import { ModernClient } from './support/modern-client.ts'

after(cleanUp)

const DAY_MS = 86_400_000

test('a list that was promised to hold for a day is asked for anew once its server says that it changed', async (t) => {
  let tool = 'first'
  let asked = 0
  const tellers: ((method: string) => void)[] = []
  const { url } = await modernServer(t, ({ body }, response) => {
    const { id, method } = body
    if (method === 'subscriptions/listen') {
      const send = events(response)
      const tell = (method: string) =>
        send({ jsonrpc: '2.0', method, params: { _meta: { [SUBSCRIPTION_ID_KEY]: id } } })
      tell('notifications/subscriptions/acknowledged')
      tellers.push(tell)
      return
    }
    const isTools = method === 'tools/list'
    if (isTools) asked++
    const list = { tools: [{ name: tool, inputSchema: { type: 'object' } }] }
    const result = isTools ? { ...list, ttlMs: DAY_MS, cacheScope: 'public' } : {}
    json(response, { jsonrpc: '2.0', id, result: { resultType: 'complete', ...result } })
  })
  const gateway = await Gateway.start({
    gateway: { environment: 'test' },
    servers: { lists: { url, refresh: '1h' } },
  })
  await gateway.waitFor('up', 'lists')
  const client = new ModernClient(gateway.mcp('lists'))
  const names = async () => {
    const { messages } = await client.ask('tools/list')
    return ((messages.at(-1)?.result as Json).tools as { name: string }[]).map(({ name }) => name)
  }
  assert.deepEqual(await names(), ['first'])
  const before = asked
  assert.deepEqual(await names(), ['first'])
  assert.equal(asked, before, 'the list is cached')

  await until('the gateway listens', () => tellers.length > 0)
  tool = 'second'
  for (const tell of tellers) tell('notifications/tools/list_changed')
  await until('the new list is given out', async () => (await names())[0] === 'second')

  tool = 'third'
  await gateway.post('/admin/servers/lists/restart')
  await until('the newest list is given out', async () => (await names())[0] === 'third')
  assert.ok(discovered.capabilities.tools.listChanged)
})
