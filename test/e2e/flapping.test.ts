import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { setTimeout } from 'node:timers/promises'
import { Agent, talliesOf, type Told } from './support/agent.ts'
import { CountingServer } from './support/counting.ts'
import { cleanUp, Gateway } from './support/gateway.ts'

after(cleanUp)

const CYCLES = 5
const HALF_MS = 1_000
const AGENTS = 5
/** Interval between calls of each agent, in milliseconds, unless its last call is under way. */
const EVERY_MS = 10
/** A call started at most this long before an outage may be cut off, in milliseconds. */
const CUT_OFF_MS = 50

interface Call {
  readonly startedAt: number
  readonly told: Told
}

test('calls to a server that flaps every second succeed while the server is up', async (t) => {
  const server = await CountingServer.start('legacy', 2)
  const entry = (index: number) => ({ url: server.urls[index], era: 'legacy', trusted: true })
  const gateway = await Gateway.start({
    servers: { guarded: entry(0), bare: entry(1) },
    policies: { overrides: [{ match: { server: 'bare' }, breaker: false }] },
  })
  await gateway.waitFor('up', 'guarded', 'bare')
  let stopped = false
  const call = async (agent: Agent, calls: Call[]) => {
    for (let nth = 0; !stopped; nth++) {
      const startedAt = performance.now()
      const pause = setTimeout(EVERY_MS)
      const told = await agent.call('write', { token: `${nth}` })
      calls.push({ startedAt, told })
      await pause
    }
  }
  const results = { guarded: [] as Call[], bare: [] as Call[] }
  // While the server is up: a lost server cannot describe itself, and its agents would get no session.
  const openAll = (name: string) =>
    Promise.all(Array.from({ length: AGENTS }, () => Agent.open('legacy', gateway.mcp(name))))
  const agents = { guarded: await openAll('guarded'), bare: await openAll('bare') }
  const loops = (['guarded', 'bare'] as const).flatMap((name) =>
    agents[name].map((agent) => call(agent, results[name])),
  )
  const ups: { from: number; to: number }[] = []
  const both = async (action: 'up' | 'down' | 'forget') => {
    await Promise.all([server.tell(0, action), server.tell(1, action)])
  }
  for (let cycle = 0; cycle < CYCLES; cycle++) {
    await both('down')
    await both('forget')
    await setTimeout(HALF_MS)
    await both('up')
    const from = performance.now()
    await setTimeout(HALF_MS)
    ups.push({ from, to: performance.now() - CUT_OFF_MS })
  }
  stopped = true
  await Promise.all(loops)
  const endsOf = (calls: readonly Call[]) => {
    const inUp = calls.filter(({ startedAt }) =>
      ups.some(({ from, to }) => startedAt >= from && startedAt <= to),
    )
    const tallies = talliesOf(inUp.map(({ told }) => told))
    return { ratio: (tallies.result ?? 0) / inUp.length, tallies }
  }
  const guarded = endsOf(results.guarded)
  const bare = endsOf(results.bare)
  const report = `while it is up: ${JSON.stringify({ guarded, bare })}`
  t.diagnostic(report)
  assert.ok(bare.ratio >= 0.8, report)
  assert.ok(guarded.ratio >= 0.8, report)
})
