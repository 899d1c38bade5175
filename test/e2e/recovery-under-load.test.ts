import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { setTimeout } from 'node:timers/promises'
import { until } from '../support/until.ts'
import { Agent, talliesOf, type Told } from './support/agent.ts'
import { CountingServer, type Era } from './support/counting.ts'
import { cleanUp, Gateway } from './support/gateway.ts'

const SESSIONS = 10
const AT_ONCE = 3
/** Pause between two rounds of one session, in milliseconds. */
const PAUSE_MS = 30
const OUTAGE_MS = 1_000
/** How long a server is watched after its return, in milliseconds. */
const WATCHED_MS = 5_000

let gateway: Gateway
const servers = new Map<string, CountingServer>()

/** Each path of an agent to a server with sessions; a server with a configured era gets requests of this era only. */
const ways = (['legacy', 'auto'] as const).flatMap((pin) =>
  (['legacy', 'modern'] as const).flatMap((agent) => ['own', 'all'].map((route) => ({ pin, agent, route }))),
)
type Way = (typeof ways)[number]

const titleOf = ({ pin, agent, route }: Way) => `${agent} agents, era ${pin}, endpoint of ${route}`
const nameOf = (kind: string, { pin, agent, route }: Way) => `${kind}-${pin}-${agent}-${route}`

/** A subset in which each two settings meet once: a load is expensive. */
const pairwise = ways.filter(
  ({ pin, agent, route }) => (pin === 'auto') !== ((agent === 'modern') === (route === 'own')),
)
const kinds = { load: pairwise, burst: ways }

before(async () => {
  for (const [kind, ways] of Object.entries(kinds))
    for (const way of ways) servers.set(nameOf(kind, way), await CountingServer.start('legacy'))
  gateway = await Gateway.start({
    servers: Object.fromEntries(
      Object.entries(kinds).flatMap(([kind, ways]) =>
        ways.map((way) => {
          const name = nameOf(kind, way)
          return [name, { url: serverOf(name).urls[0], era: way.pin, trusted: true }]
        }),
      ),
    ),
  })
  await gateway.waitFor('up', ...servers.keys())
})
after(cleanUp)

function serverOf(name: string): CountingServer {
  const server = servers.get(name)
  assert.ok(server)
  return server
}

/** Opens an agent that calls only `write` of one server, on either endpoint. */
async function writerOf(name: string, agent: Era, route: string): Promise<(token: string) => Promise<Told>> {
  const isAll = route === 'all'
  const client = await Agent.open(agent, gateway.mcp(isAll ? undefined : name))
  return (token) => client.call(isAll ? `${name}__write` : 'write', { token })
}

// Concurrent, because the loads mostly wait, each for its own server.
describe('loads', { concurrency: 4 }, () => {
  for (const way of pairwise)
    test(`a restart under load is over when the server is back (${titleOf(way)})`, async (t) => {
      const name = nameOf('load', way)
      const server = serverOf(name)
      const agents = await Promise.all(
        Array.from({ length: SESSIONS }, () => writerOf(name, way.agent, way.route)),
      )
      const calls: { startedAt: number; told: Told }[] = []
      let stopped = false
      let tokens = 0
      const loops = agents.map(async (write) => {
        while (!stopped) {
          const startedAt = performance.now()
          const tolds = await Promise.all(Array.from({ length: AT_ONCE }, () => write(`load-${++tokens}`)))
          for (const told of tolds) calls.push({ startedAt, told })
          await setTimeout(PAUSE_MS)
        }
      })
      await until('every session is under load', () => calls.length >= SESSIONS * AT_ONCE)
      await server.program.kill()
      await setTimeout(OUTAGE_MS)
      await server.revive()
      const backAt = performance.now()
      await setTimeout(WATCHED_MS)
      stopped = true
      await Promise.all(loops)
      const since = calls.filter(({ startedAt }) => startedAt >= backAt)
      const good = since.filter(({ told }) => told.kind === 'result')
      const firstMs = Math.round(Math.min(...good.map(({ startedAt }) => startedAt)) - backAt)
      const bad = since.filter(({ told }) => told.kind !== 'result')
      const lastMs = Math.round(Math.max(backAt, ...bad.map(({ startedAt }) => startedAt)) - backAt)
      const report =
        `${good.length} of ${since.length}, the first after ${firstMs} ms, the last failure after ${lastMs} ms: ` +
        JSON.stringify(talliesOf(since.map(({ told }) => told)))
      t.diagnostic(report)
      const last = await Promise.all(agents.map((write, index) => write(`last-${index}`)))
      const runs = Object.entries(await server.runs()).filter(([, count]) => count > 1)
      assert.deepEqual(
        {
          twice: runs,
          dead: calls.filter(({ told }) => told.kind === 'nothing').length,
          last: talliesOf(last),
        },
        { twice: [], dead: 0, last: { result: SESSIONS } },
        report,
      )
      assert.ok(good.length >= 0.95 * since.length, report)
    })
})

const BURST = 20
const RESTARTS = 3

for (const way of ways)
  test(`${BURST} calls at once after a restart open the session once and succeed (${titleOf(way)})`, async () => {
    const name = nameOf('burst', way)
    const server = serverOf(name)
    const write = await writerOf(name, way.agent, way.route)
    assert.deepEqual(await write('first'), { kind: 'result' })
    const seen: unknown[] = []
    for (let restart = 0; restart < RESTARTS; restart++) {
      await server.program.kill()
      await server.revive()
      const told = await Promise.all(
        Array.from({ length: BURST }, (_, index) => write(`burst-${restart}-${index}`)),
      )
      const [stats] = await server.stats()
      const others = Object.entries(stats?.initialized ?? {}).filter(([client]) => client !== 'breakwater')
      const twice = Object.values(await server.runs()).filter((count) => count > 1).length
      seen.push({ told: talliesOf(told), opened: others.reduce((sum, [, count]) => sum + count, 0), twice })
    }
    const right = { told: { result: BURST }, opened: 1, twice: 0 }
    assert.deepEqual(
      seen,
      Array.from({ length: RESTARTS }, () => right),
    )
  })
