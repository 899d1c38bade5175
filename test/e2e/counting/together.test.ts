import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { until } from '../../support/until.ts'
import { Agent, talliesOf } from '../support/agent.ts'
import { CountingServer } from '../support/counting.ts'
import { cleanUp, Gateway } from '../support/gateway.ts'

after(cleanUp)

const AT_ONCE = 10
/** Duration of the writes under way during an event, in milliseconds. */
const SLOW_MS = 800

const ways = (['legacy', 'modern'] as const).flatMap((agent) =>
  [1, 2].map((replicas) => ({ agent, replicas })),
)

/** Tests per path; each has its own server behind one gateway. */
const SCENES = 5

let counting: CountingServer
let gateway: Gateway

const endpointsOf = new Map<string, readonly number[]>()

before(async () => {
  let next = 0
  for (const { agent, replicas } of ways)
    for (let scene = 0; scene < SCENES; scene++)
      endpointsOf.set(
        `${agent}-${replicas}-${scene}`,
        Array.from({ length: replicas }, () => next++),
      )
  counting = await CountingServer.start('legacy', next)
  gateway = await Gateway.start({
    servers: Object.fromEntries(
      [...endpointsOf].map(([name, own]) => [
        name,
        { urls: own.map((endpoint) => counting.urls[endpoint]), era: 'legacy', trusted: true },
      ]),
    ),
    policies: { defaults: { hedge: { after: 100 } } },
  })
  await gateway.waitFor('up', ...endpointsOf.keys())
})

const taken = new Set<string>()

/** Returns an unused server of a path, and an agent that has called it. */
async function stage(agentEra: 'legacy' | 'modern', replicas: number) {
  const [name, endpoints] = [...endpointsOf].find(
    ([name]) => name.startsWith(`${agentEra}-${replicas}-`) && !taken.has(name),
  ) as [string, readonly number[]]
  taken.add(name)
  const stats = async () => {
    const all = await counting.stats()
    return endpoints.map((endpoint) => all[endpoint]!)
  }
  const runs = async () =>
    Object.fromEntries(
      Object.entries(await counting.runs()).flatMap(([token, count]) =>
        token.startsWith(`${name}/`) ? [[token.slice(name.length + 1), count]] : [],
      ),
    )
  const forget = () => Promise.all(endpoints.map((endpoint) => counting.tell(endpoint, 'forget')))
  const agent = await Agent.open(agentEra, gateway.mcp(name))
  const writeOne = (token: string, more: object = {}) =>
    agent.call('write', { token: `${name}/${token}`, ...more })
  assert.equal((await writeOne('first')).kind, 'result')
  const write = (kind: string, more: object = {}) =>
    Promise.all(Array.from({ length: AT_ONCE }, (_, nth) => writeOne(`${kind}-${nth}`, more)))
  /** Returns how often writes of a kind ran: each number of runs, with its frequency. */
  const runsOf = async (kind: string) => {
    const ran = await runs()
    const counts: Record<string, number> = {}
    for (let nth = 0; nth < AT_ONCE; nth++) {
      const times = ran[`${kind}-${nth}`] ?? 0
      counts[times] = (counts[times] ?? 0) + 1
    }
    return counts
  }
  /** Returns the handshakes for agents so far. */
  const opened = async () =>
    (await stats())
      .flatMap(({ initialized }) => Object.entries(initialized))
      .reduce((sum, [client, count]) => sum + (client === 'breakwater' ? 0 : count), 0)
  /** Starts slow writes; resolves once all of them have reached the server. */
  const slowWrites = async (kind: string) => {
    const calls = async () =>
      (await stats()).reduce((sum, { methods }) => sum + (methods['tools/call'] ?? 0), 0)
    const before = await calls()
    const told = write(kind, { ms: SLOW_MS })
    await until('the writes are under way', async () => (await calls()) >= before + AT_ONCE)
    // An object keeps the caller from awaiting the writes.
    return { told }
  }
  return { forget, write, writeOne, slowWrites, runs, runsOf, opened }
}

for (const { agent: era, replicas } of ways) {
  const where = `${era} agent, ${replicas === 1 ? 'one server' : `${replicas} replicas`}`

  describe(where, { concurrency: SCENES }, () => {
    test(`writes under way when the server forgets their session succeed and run once, like later writes (${where})`, async () => {
      const { forget, write, slowWrites, runsOf, opened } = await stage(era, replicas)
      const before = await opened()
      const underWay = await slowWrites('early')
      await forget()
      const [early, late] = await Promise.all([underWay.told, write('late')])
      assert.deepEqual(
        {
          early: talliesOf(early),
          late: talliesOf(late),
          ran: [await runsOf('early'), await runsOf('late')],
          // A shared session may move to any of the replicas.
          opened: Math.ceil(((await opened()) - before) / (era === 'modern' ? replicas : 1)),
        },
        {
          early: { result: AT_ONCE },
          late: { result: AT_ONCE },
          ran: [{ 1: AT_ONCE }, { 1: AT_ONCE }],
          opened: 1,
        },
      )
    })

    for (const mode of ['booking_full_400', 'status_404_after', 'status_404_own_error'])
      test(`writes whose replies look like a lost session run once, and hurt nobody ("${mode}", ${where})`, async () => {
        const { runs, write, writeOne, slowWrites } = await stage(era, replicas)
        const underWay = await slowWrites('slow')
        const odd = await write('odd', { mode })
        const slow = await underWay.told
        const last = await writeOne('last')
        const ran = await runs()
        const times = (token: string) => ran[token] ?? 0
        const wrong = odd.flatMap((told, nth) => {
          const count = times(`odd-${nth}`)
          const isHonest = told.kind === 'error' ? told.sent === true || count === 0 : told.kind !== 'nothing'
          return count <= 1 && isHonest ? [] : [{ count, told }]
        })
        const slowRuns = slow.map((_, nth) => times(`slow-${nth}`))
        assert.deepEqual(
          { slow: talliesOf(slow), slowRuns, wrong, last: last.kind },
          { slow: { result: AT_ONCE }, slowRuns: Array(AT_ONCE).fill(1), wrong: [], last: 'result' },
        )
      })

    test(`a server that forgets every session is not opened in a loop (${where})`, async () => {
      const { write, writeOne, runsOf, opened } = await stage(era, replicas)
      const before = await opened()
      const told = [...(await write('once', { mode: 'session_lost_always' }))]
      for (let nth = 0; nth < AT_ONCE; nth++)
        told.push(await writeOne(`again-${nth}`, { mode: 'session_lost_always' }))
      const openings = (await opened()) - before
      assert.deepEqual(await runsOf('once'), { 0: AT_ONCE })
      assert.ok(openings <= 2 * told.length, `${openings} sessions opened for ${told.length} calls`)
      // Only the session's own agent hears of the loss, and only if retries cannot help.
      assert.equal(talliesOf(told).result ?? 0, 0)
    })
  })
}
