import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { setTimeout } from 'node:timers/promises'
import { until } from '../support/until.ts'
import { FlakyServer } from './support/flaky.ts'
import { cleanUp, Gateway } from './support/gateway.ts'
import { RawClient } from './support/raw-client.ts'

const CALLERS = 10

after(cleanUp)

test('calls go to the fast one of two replicas, and the slow one is tried again later', async () => {
  const [fast, slow] = await Promise.all([FlakyServer.start(), FlakyServer.start()])
  await slow.behave({ read: { delayMs: 300 } })
  const gateway = await Gateway.start({ servers: { pair: { urls: [slow.url, fast.url] } } })
  await gateway.waitFor('up', 'pair')
  let stopped = false
  const agent = async () => {
    const client = await RawClient.open(gateway.mcp('pair'))
    while (!stopped) {
      await client.say('read')
      await setTimeout(10)
    }
  }
  const agents = Array.from({ length: CALLERS }, agent)
  try {
    await setTimeout(5_000)
    const before = await Promise.all([fast.count('read'), slow.count('read')])
    await setTimeout(5_000)
    const later = await Promise.all([fast.count('read'), slow.count('read')])
    const [toFast, toSlow] = [later[0] - before[0], later[1] - before[1]]
    const share = toFast / (toFast + toSlow)
    assert.ok(share >= 0.95, `${toFast} of ${toFast + toSlow} calls went to the fast replica`)

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
