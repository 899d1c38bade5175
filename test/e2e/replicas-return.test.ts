import assert from 'node:assert/strict'
import { after, describe, test } from 'node:test'
import { setTimeout } from 'node:timers/promises'
import { Agent, talliesOf, type Told } from './support/agent.ts'
import { CountingServer } from './support/counting.ts'
import { cleanUp, Gateway } from './support/gateway.ts'

after(cleanUp)

const REPLICAS = 3
/** Enough agents that no replica stays without calls by chance. */
const AGENTS = 36
/** Pause between two calls of one agent, in milliseconds. */
const PAUSE_MS = 30
const OUTAGE_MS = 3_000
const SETTLED_MS = 10_000
const WATCHED_MS = 5_000

// Concurrent, because the tests mostly wait and share no state.
describe('replicas that return', { concurrency: 2 }, () => {
  for (const era of ['legacy', 'modern'] as const)
    test(`calls of ${AGENTS} agents spread again over all replicas after a total outage (${era} era)`, async (t) => {
      const servers = await Promise.all(Array.from({ length: REPLICAS }, () => CountingServer.start(era)))
      const urls = servers.flatMap(({ urls }) => urls)
      const gateway = await Gateway.start({ servers: { three: { urls, era, trusted: true } } })
      await gateway.waitFor('up', 'three')
      let stopped = false
      const watched: Told[] = []
      let watching = false
      const agents = await Promise.all(
        Array.from({ length: AGENTS }, () => Agent.open(era, gateway.mcp('three'))),
      )
      const loops = agents.map(async (agent) => {
        for (let nth = 0; !stopped; nth++) {
          const told = await agent.call('write', { token: `${nth}` })
          if (watching) watched.push(told)
          await setTimeout(PAUSE_MS)
        }
      })
      const calls = async () =>
        (await Promise.all(servers.map((server) => server.stats()))).map(
          ([stats]) => stats?.methods['tools/call'] ?? 0,
        )
      const over = async (ms: number) => {
        const before = await calls()
        await setTimeout(ms)
        const counts = (await calls()).map((count, index) => count - (before[index] ?? 0))
        const sum = counts.reduce((total, count) => total + count, 0)
        return { counts, shares: counts.map((count) => count / sum) }
      }
      const first = await over(1_000)
      await Promise.all(servers.map(({ program }) => program.kill()))
      await setTimeout(OUTAGE_MS)
      await Promise.all(servers.map((server) => server.revive()))
      await setTimeout(SETTLED_MS)
      watching = true
      const { counts, shares } = await over(WATCHED_MS)
      stopped = true
      await Promise.all(loops)
      const report = `before ${first.counts.join('/')}, after ${counts.join('/')}; ${JSON.stringify(talliesOf(watched))}`
      t.diagnostic(report)
      // A slower replica gets fewer calls, and on a busy machine some replica is slower; even an avoided replica gets a
      // call now and then.
      for (const share of shares) assert.ok(share >= 0.02 && share <= 0.9, report)
      assert.ok((talliesOf(watched).result ?? 0) >= 0.95 * watched.length, report)
    })
})
