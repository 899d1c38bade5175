import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { setTimeout } from 'node:timers/promises'
import { FlakyServer } from './support/flaky.ts'
import { cleanUp, Gateway, type Json } from './support/gateway.ts'
import { RawClient } from './support/raw-client.ts'

const CALLERS = 50
/** Longer than the ten-second window of a retry budget. */
const OUTAGE_MS = 12_000
/** Pause between two calls of one agent, in milliseconds: 50 agents make about 200 calls a second. */
const PAUSE_MS = 250

after(cleanUp)

interface Report {
  /** Calls begun during the outage, and the failures among them. */
  readonly offered: number
  readonly failed: number
  /** Calls the server had received when it worked again. */
  readonly received: number
}

/** Returns an outage as seen from both sides. */
async function outage(policies: Json): Promise<Report> {
  const server = await FlakyServer.start()
  await server.behave({ read: { failing: 1 } })
  const gateway = await Gateway.start({ servers: { flaky: { url: server.url, trusted: true } }, policies })
  await gateway.waitFor('up', 'flaky')
  const clients = await Promise.all(
    Array.from({ length: CALLERS }, () => RawClient.open(gateway.mcp('flaky'))),
  )
  const until = performance.now() + OUTAGE_MS
  let [offered, failed] = [0, 0]
  const agent = async (client: RawClient) => {
    while (performance.now() < until) {
      offered++
      if ((await client.call('read')).error !== undefined) failed++
      await setTimeout(PAUSE_MS)
    }
  }
  const agents = clients.map(agent)
  await setTimeout(OUTAGE_MS)
  const received = await server.count('read')
  await server.behave({ read: {} })
  await Promise.all(agents)
  return { offered, failed, received }
}

test('retries wait until a failing server works again, and reach it a few times a second meanwhile', async () => {
  const { offered, failed, received } = await outage({})
  const report = JSON.stringify({ offered, failed, received })
  assert.equal(failed, 0, `no call is lost: ${report}`)
  assert.ok(received > offered, `there were retries: ${report}`)
  // A single call probes at a time: ten a second at first, two in the end.
  assert.ok(received <= offered + (OUTAGE_MS / 1_000) * 5, `only some of them go: ${report}`)
})

test('retries without proof add at most a quarter within such a budget, and breakers keep four of five away', async () => {
  const retry = { waitForProof: false, budget: { ratio: 0.2, floor: 1 } }
  const [budgeted, broken] = await Promise.all([
    outage({ defaults: { retry } }),
    outage({ defaults: { retry, breaker: {} } }),
  ])
  const report = JSON.stringify({ budgeted, broken })
  assert.ok(budgeted.received > budgeted.offered * 1.05, `there were retries: ${report}`)
  assert.ok(budgeted.received <= budgeted.offered * 1.25, `retries stay in their budget: ${report}`)
  // The breaker lets some fifty calls through whatever is offered, and a busy machine offers fewer.
  assert.ok(broken.received < broken.offered * 0.2, `the breaker keeps calls away: ${report}`)
})
