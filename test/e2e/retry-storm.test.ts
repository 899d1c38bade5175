import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { setTimeout } from 'node:timers/promises'
import { FlakyServer } from './support/flaky.ts'
import { cleanUp, Gateway, type Json } from './support/gateway.ts'
import { RawClient } from './support/raw-client.ts'

const CALLERS = 50
/** Longer than the window of ten seconds in which a budget counts. */
const OUTAGE_MS = 12_000
/** Between two calls of one agent: with 50 of them, about 200 calls a second. */
const PAUSE_MS = 250

after(cleanUp)

/** What an outage looks like from both sides: calls of agents, calls that reached the server. */
async function outage(policies: Json): Promise<{ offered: number; received: number }> {
  const server = await FlakyServer.start()
  await server.behave({ read: { failing: 1 } })
  const gateway = await Gateway.start({ servers: { flaky: { url: server.url, trusted: true } }, policies })
  await gateway.waitFor('up', 'flaky')
  const clients = await Promise.all(
    Array.from({ length: CALLERS }, () => RawClient.open(gateway.mcp('flaky'))),
  )
  const until = performance.now() + OUTAGE_MS
  let offered = 0
  const agent = async (client: RawClient) => {
    while (performance.now() < until) {
      offered++
      assert.ok((await client.call('read')).error)
      await setTimeout(PAUSE_MS)
    }
  }
  await Promise.all(clients.map(agent))
  return { offered, received: await server.count('read') }
}

test('retries add at most a quarter to what a dead server gets, and breakers keep nearly all of it away', async () => {
  const [budgeted, broken] = await Promise.all([outage({ defaults: { breaker: false } }), outage({})])
  const report = JSON.stringify({ budgeted, broken })
  assert.ok(budgeted.received > budgeted.offered * 1.05, `there were retries: ${report}`)
  assert.ok(budgeted.received <= budgeted.offered * 1.25, `retries stay in their budget: ${report}`)
  assert.ok(broken.received < broken.offered * 0.1, `the breaker keeps calls away: ${report}`)
})
