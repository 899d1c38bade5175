import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { FlakyServer } from './support/flaky.ts'
import { cleanUp, Gateway, type Json } from './support/gateway.ts'
import { RawClient } from './support/raw-client.ts'

let server: FlakyServer
let gateway: Gateway
let client: RawClient

interface Chain {
  readonly layer: string
  readonly config?: Json
  readonly from?: string
}

interface OfServer {
  readonly server: string
  readonly tools: Readonly<Record<string, readonly Chain[]>>
}

before(async () => {
  server = await FlakyServer.start()
  gateway = await Gateway.start({
    servers: { flaky: { url: server.url, trusted: true } },
    policies: {
      overrides: [{ match: { tool: 'wr*' }, bulkhead: { concurrent: 7 }, rateLimit: { rate: '100/s' } }],
      sets: { cautious: { retry: false, overdue: false, deadline: { total: '5s' } } },
    },
  })
  await gateway.waitFor('up', 'flaky')
  client = await RawClient.open(gateway.mcp('flaky'))
})
after(cleanUp)

async function chainOf(tool: string, query = ''): Promise<readonly Chain[]> {
  const { body } = await gateway.admin<OfServer[]>(`/admin/mesh${query}`)
  return body[0]?.tools[tool] ?? []
}

const find = (chain: readonly Chain[], name: string) => chain.find(({ layer }) => layer === name)

test('the mesh shows the policies that are in force without a word, in their order', async () => {
  assert.deepEqual(
    (await chainOf('read')).map(({ layer }) => layer),
    [
      'observe',
      'deadline',
      'arguments',
      'idempotency',
      'retry',
      'gate',
      'overdue',
      'bulkhead',
      'route',
      'attemptTimeout',
      'verdict',
      'transport',
    ],
  )
})

test('it shows what an override says, and what a set says', async () => {
  const bulkhead = find(await chainOf('write'), 'bulkhead')
  assert.deepEqual([bulkhead?.from, bulkhead?.config?.concurrent], ['override 0', 7])
  const cautious = await chainOf('write', '?set=cautious')
  assert.equal(find(cautious, 'retry'), undefined)
  const deadline = find(cautious, 'deadline')
  assert.deepEqual([deadline?.from, deadline?.config?.total], ['set cautious', 5_000])
  assert.equal(find(cautious, 'bulkhead')?.from, 'override 0')
})

test('a set that nobody has configured is not found', async () => {
  for (const set of ['reckless', 'toString', '']) {
    const { status, body } = await gateway.admin(`/admin/mesh?set=${set}`)
    assert.equal(status, 404)
    assert.deepEqual(body.sets, ['default', 'cautious'])
  }
})

test('budgets say what is left of retries, slots and rates', async () => {
  for (let n = 0; n < 3; n++) await client.say('write')
  const { body } = await gateway.admin<Record<string, Json[]>>('/admin/budgets')
  const budgets = body['retry-budget'] ?? []
  assert.deepEqual(budgets.map((budget) => budget.server).sort(), ['', 'flaky'])
  for (const { set, balance } of budgets) assert.deepEqual([set, Number(balance) > 0], ['default', true])
  assert.ok(body.bulkhead?.some(({ server, running }) => server === 'flaky' && running === 0))
  assert.ok(body['rate-limit']?.some((limit) => limit.server === 'flaky'))
})
