import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { cleanUp, Gateway } from '../support/gateway.ts'
import { ModernClient } from '../support/modern-client.ts'
import { RawClient } from '../support/raw-client.ts'
import { httpShop } from '../support/shop.ts'

const INTENT = 'dev.breakwater/intent'
const OUTCOME = 'dev.breakwater/outcome'

let gateway: Gateway

before(async () => {
  const entry = { url: await httpShop(['words_story', 'words_other']), era: 'modern', trusted: true }
  const empty = (name: string) => ({
    name,
    type: 'result.empty',
    rate: 1,
    ttl: '15m',
    match: { server: name, tool: 'words_story' },
  })
  gateway = await Gateway.start({
    gateway: { environment: 'test' },
    servers: { legacy: entry, modern: entry },
    chaos: { enabled: true, persist: true, faults: [empty('legacy'), empty('modern')] },
  })
  await gateway.waitFor('up', 'legacy', 'modern')
})
after(cleanUp)

/** What is known of what agents did with what a fault made. */
async function known(fault: string) {
  const { body } = await gateway.admin<{
    faults: { name: string; safe: number; silent: number; unknown: number }[]
  }>('/admin/chaos')
  const { safe, silent, unknown } = body.faults.find(({ name }) => name === fault)!
  return { safe, silent, unknown }
}

test('an agent says with its next call what it did with the result of an earlier one, by its id', async () => {
  const [client, stranger] = [
    await RawClient.open(gateway.mcp('legacy')),
    await RawClient.open(gateway.mcp('legacy')),
  ]
  const { id } = await client.call('words_story')
  const report = (outcome: string) => ({
    name: 'words_other',
    arguments: {},
    _meta: { [OUTCOME]: { call: id, outcome } },
  })
  await stranger.request('tools/call', report('safe'))
  assert.deepEqual(await known('legacy'), { safe: 0, silent: 0, unknown: 0 })
  await client.request('tools/call', report('silent'))
  assert.deepEqual(await known('legacy'), { safe: 0, silent: 1, unknown: 0 })
  await client.request('tools/call', report('safe'))
  assert.deepEqual(await known('legacy'), { safe: 0, silent: 1, unknown: 0 })
})

test('an agent of the modern era names the intent of the earlier call', async () => {
  async function call(name: string, said: object): Promise<void> {
    const client = new ModernClient(gateway.mcp('modern'))
    Object.assign(client.meta, said)
    const { messages } = await client.call(name)
    assert.ok(messages[0]?.result, JSON.stringify(messages))
  }
  await call('words_story', { [INTENT]: 'task-1' })
  await call('words_other', { [INTENT]: 'task-1', [OUTCOME]: { call: 'task-1', outcome: 'safe' } })
  assert.deepEqual(await known('modern'), { safe: 1, silent: 0, unknown: 0 })
})
