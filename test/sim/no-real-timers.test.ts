import assert from 'node:assert/strict'
import { mock, test } from 'node:test'
import type { Call, Outcome } from '../../src/mesh/call.ts'
import { resultOf } from '../../src/mesh/classify.ts'
import { SimulatedGateway } from '../../src/sim/gateway.ts'
import { policiesOf } from '../../src/sim/policy-choices.ts'
import { planned } from '../../src/sim/scene.ts'
import type { ToolModel } from '../../src/sim/servers.ts'
import { VirtualClock } from '../../src/sim/virtual-clock.ts'

const HOUR_MS = 3_600_000

/** Answers in 20 ms at the median, and now and then in seconds. */
const tool: ToolModel = {
  tookMs: (_, draw) => 20 / (1 - draw('time')) ** 1.2,
  answer: ({ n }) => ({ n }),
  outputSchema: { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] },
}

/** Every policy with a wait or a measurement is in force somewhere. */
const policies = policiesOf({
  defaults: { attemptTimeout: { timeout: '2s' }, deadline: { total: '10s' }, breaker: {} },
  overrides: [
    {
      match: { server: 'contract' },
      rateLimit: { quota: { calls: 30, per: '1m', queue: 50, maxWait: '30s' } },
    },
    { match: { server: 'hedged' }, hedge: { after: '500ms' }, adaptiveConcurrency: {} },
    { match: { server: 'limited' }, rateLimit: { rate: '1/s', burst: 5 } },
  ],
})

const faults = [
  planned({ name: 'slow', type: 'conn.latency', rate: 0.2, distribution: { kind: 'fixed', delay: '3s' } }),
  planned({ name: 'errors', type: 'rpc.error', rate: 0.2 }),
  planned({
    name: 'outage',
    type: 'conn.refused',
    rate: 1,
    match: { server: 'hedged' },
    when: { window: { from: '10m', to: '20m' } },
  }),
]

/** Plays an hour of calls, one a second, to the servers in turn. Resolves to all outcomes. */
async function anHour(): Promise<string> {
  const clock = new VirtualClock()
  const ended: unknown[] = []
  const onCall = ({ server, record }: Call, outcome: Outcome) => {
    const reason = outcome.kind === 'answered' ? outcome.verdict : outcome.error.reason
    ended.push([server, record.attempts, resultOf(outcome), reason, clock.now()])
  }
  const servers = { contract: { tools: { tool } }, hedged: { tools: { tool } }, limited: { tools: { tool } } }
  const gateway = new SimulatedGateway({
    clock,
    seed: 11,
    servers,
    policies,
    plan: { seed: 5, faults },
    onCall,
  })
  const names = Object.keys(servers)
  const calls: Promise<unknown>[] = []
  for (let n = 0; n < HOUR_MS / 1_000; n++)
    clock.after(n * 1_000, () => {
      const server = names[n % names.length]!
      for (let burst = 0; burst < 3; burst++)
        calls.push(gateway.call({ server, tool: 'tool', args: { n }, intent: `task ${n}`, step: burst }))
    })
  await clock.run(new Promise<void>((resolve) => clock.after(HOUR_MS, resolve)))
  await clock.run(Promise.all(calls))
  assert.ok(clock.now() >= HOUR_MS)
  return JSON.stringify(ended)
}

// Outside of the test: within a test, each promise of a simulation costs several times as much.
const set: string[] = []
for (const name of ['setTimeout', 'setInterval'] as const)
  mock.method(globalThis, name, () => {
    set.push(new Error(name).stack ?? name)
    throw new Error(`${name} was called`)
  })
const first = await anHour()
const second = await anHour()
mock.restoreAll()

test('an hour passes without a timer of the platform, and is the same hour each time', () => {
  assert.deepEqual(set, [])
  assert.ok(first === second, 'the same calls end in the same way at the same time')
  // The hour must include these events.
  for (const word of ['attempt_timeout', 'breaker_open', 'rate_limited', 'upstream_unavailable', 'correct'])
    assert.ok(first.includes(`"${word}"`), word)
})
