import assert from 'node:assert/strict'
import { after, describe, test } from 'node:test'
import { Agent, talliesOf, type Told } from './support/agent.ts'
import { CountingServer, type Era } from './support/counting.ts'
import { cleanUp, Gateway, type Json } from './support/gateway.ts'

after(cleanUp)

/** Duration of unharmed calls, and the moment the other call breaks, in milliseconds. */
const SLOW_MS = 1_000
const BREAKS_MS = 250

const eras = ['legacy', 'modern'] as const
const breaks = ['reset_after', 'close_after', 'reset_in_body', 'sse_cut']

async function stage(era: Era, policies: Json = {}, replicas = 2) {
  const server = await CountingServer.start(era, replicas)
  const entry = { urls: server.urls, era, trusted: true }
  const gateway = await Gateway.start({ servers: { pair: entry }, policies })
  await gateway.waitFor('up', 'pair')
  return { server, gateway }
}

/** Starts a slow call for each agent at once; the connection of one call breaks. */
function callTogether(agents: readonly Agent[], mode: string, tool: string): Promise<Told[]> {
  return Promise.all(
    agents.map((agent, nth) =>
      agent.call(tool, {
        token: `${mode}-${tool}-${nth}`,
        ...(nth === 0 ? { ms: BREAKS_MS, mode } : { ms: SLOW_MS }),
      }),
    ),
  )
}

interface Scene {
  readonly title: string
  readonly agents: (gateway: Gateway) => Promise<Agent[]>
}

const scenes: readonly Scene[] = [
  {
    title: '16 calls of one session',
    async agents(gateway) {
      const agent = await Agent.open('legacy', gateway.mcp('pair'))
      return Array.from({ length: 16 }, () => agent)
    },
  },
  {
    title: '20 modern agents',
    agents: (gateway) =>
      Promise.all(Array.from({ length: 20 }, () => Agent.open('modern', gateway.mcp('pair')))),
  },
]

// Concurrent, because the tests mostly wait and share no state.
describe('broken connections', { concurrency: 4 }, () => {
  for (const { title, agents: agentsOf } of scenes)
    for (const era of eras)
      test(`a broken connection hurts one of ${title} (two replicas, server of the ${era} era)`, async () => {
        const { server, gateway } = await stage(era)
        const agents = await agentsOf(gateway)
        await Promise.all(agents.map((agent, nth) => agent.call('write', { token: `first-${nth}` })))
        const seen: Record<string, unknown> = {}
        const right: Record<string, unknown> = {}
        for (const mode of breaks)
          for (const tool of ['write', 'read']) {
            const told = await callTogether(agents, mode, tool)
            const last = await (agents[0] as Agent).call('write', { token: `last-${mode}-${tool}` })
            const broken = told.filter(({ kind }) => kind !== 'result')
            const what = `${tool}, ${mode}`
            // A read is retried, so possibly no agent notices.
            const few = tool === 'read' && broken.length === 0
            seen[what] = { broken: few ? 'few' : talliesOf(broken), last: last.kind }
            right[what] = {
              broken: tool === 'read' ? 'few' : { upstream_disconnected: 1 },
              last: 'result',
            }
          }
        const twice = Object.entries(await server.runs()).filter(
          ([token, runs]) => token.includes('write') && runs > 1,
        )
        assert.deepEqual({ ...seen, twice }, { ...right, twice: [] })
      })
})

describe('replicas that hang', { concurrency: 4 }, () => {
  for (const era of eras)
    for (const agentEra of eras)
      test(`a read whose replica hangs is answered by another (${agentEra} agent, server of the ${era} era)`, async (t) => {
        const { server, gateway } = await stage(era, { defaults: { attemptTimeout: { timeout: 500 } } }, 3)
        const agent = await Agent.open(agentEra, gateway.mcp('pair'))
        const called = async () => (await server.stats()).map(({ methods }) => methods['tools/call'] ?? 0)
        const before = await called()
        assert.equal((await agent.call('read', { token: 'first' })).kind, 'result')
        const home = (await called()).findIndex((count, index) => count > (before[index] ?? 0))
        const others = before.map((_, index) => index).filter((index) => index !== home)
        await server.hang(home, ['tools/call'])
        const seen: string[] = []
        for (let n = 0; n < 5; n++) {
          const startedAt = performance.now()
          const told = await agent.call('read', { token: `read-${n}` })
          seen.push(told.kind === 'result' ? 'result' : Object.keys(talliesOf([told])).join())
          t.diagnostic(`${seen.at(-1)} after ${(performance.now() - startedAt).toFixed()} ms`)
        }
        const runs = await server.runs()
        const counts = await called()
        assert.deepEqual(seen, Array(5).fill('result'))
        assert.ok(others.some((index) => (counts[index] ?? 0) > 0))
        for (let n = 0; n < 5; n++) assert.ok((runs[`read-${n}`] ?? 0) >= 1)
      })
})
