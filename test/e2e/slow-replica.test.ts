import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { setTimeout } from 'node:timers/promises'
import { until } from '../support/until.ts'
import { FlakyServer } from './support/flaky.ts'
import { cleanUp, Gateway } from './support/gateway.ts'
import { RawClient } from './support/raw-client.ts'

const CALLERS = 10
/** Calls per share. */
const WINDOW = 1_000

after(cleanUp)

test('calls go to the fast one of two replicas, and the slow one is tried again later', async () => {
  const [fast, slow] = await Promise.all([FlakyServer.start(), FlakyServer.start()])
  await slow.behave({ read: { delayMs: 300 } })
  const gateway = await Gateway.start({ servers: { pair: { urls: [slow.url, fast.url] } } })
  await gateway.waitFor('up', 'pair')
  let stopped = false
  const clients = await Promise.all(
    Array.from({ length: CALLERS }, () => RawClient.open(gateway.mcp('pair'))),
  )
  const agents = clients.map(async (client) => {
    while (!stopped) {
      await client.say('read')
      await setTimeout(10)
    }
  })
  const counts = async () => ({ fast: await fast.count('read'), slow: await slow.count('read') })
  const share = async () => {
    const before = await counts()
    let now = before
    const all = () => now.fast + now.slow - before.fast - before.slow
    await until(`${WINDOW} more calls`, async () => ((now = await counts()), all() >= WINDOW), 60_000)
    return (now.fast - before.fast) / all()
  }
  try {
    // The balancer learns the faster replica during the first window.
    await share()
    const toFast = await share()
    assert.ok(toFast >= 0.95, `only ${toFast} of the calls went to the fast replica`)

    await slow.behave({ read: {} })
    const healed = await slow.count('read')
    await until(
      'the other replica carries its part again',
      async () => {
        return (await slow.count('read')) > healed + 50
      },
      60_000,
    )
  } finally {
    stopped = true
    await Promise.all(agents)
  }
})
