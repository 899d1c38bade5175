import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { FlakyServer } from './support/flaky.ts'
import { cleanUp, Gateway } from './support/gateway.ts'
import { RawClient } from './support/raw-client.ts'

const CALLS = 2_000
const STUCK_CALLERS = 100
/** The slots of a tool, and the places in the queue that it may take. */
const STUCK_AT_ONCE = 64

after(cleanUp)

test('a hung tool with a hundred callers does not slow down the tool of another server', async () => {
  const [hung, healthy] = await Promise.all([FlakyServer.start(), FlakyServer.start()])
  await hung.behave({ read: { hang: true } })
  const servers = { hung: { url: hung.url }, healthy: { url: healthy.url } }
  const policies = { defaults: { bulkhead: { maxWait: '1m' } } }
  const [besides, alone] = await Promise.all([
    Gateway.start({ servers, policies }),
    Gateway.start({ servers, policies }),
  ])
  await Promise.all([besides, alone].map((gateway) => gateway.waitFor('up', 'hung', 'healthy')))
  const stuck = Promise.allSettled(
    Array.from({ length: STUCK_CALLERS }, async () => {
      const client = await RawClient.open(besides.mcp('hung'))
      await client.call('read')
    }),
  )
  await besides.waitForCalls(STUCK_AT_ONCE)

  const clients = await Promise.all([besides, alone].map((gateway) => RawClient.open(gateway.mcp('healthy'))))
  const took: [number[], number[]] = [[], []]
  // Call by call in turn, so that whatever else the machine does strikes both alike.
  for (let call = 0; call < CALLS; call++) {
    for (const [index, client] of clients.entries()) took[index as 0 | 1].push(await timeOf(client))
  }
  const [p99Besides, p99Alone] = took.map(p99)
  assert.ok(p99Besides !== undefined && p99Alone !== undefined)
  const allowed = Math.max(p99Alone * 1.1, p99Alone + 2)
  assert.ok(p99Besides <= allowed, `p99 of ${p99Alone} ms alone, of ${p99Besides} ms beside the hung tool`)
  await besides.program.kill()
  await stuck
})

async function timeOf(client: RawClient): Promise<number> {
  const startedAt = performance.now()
  await client.say('read')
  return performance.now() - startedAt
}

function p99(times: number[]): number {
  return times.sort((a, b) => a - b)[Math.floor(times.length * 0.99)] as number
}
