import assert from 'node:assert/strict'
import { newFaultCounts } from '../../src/chaos/accounting/counts.ts'
import { test } from 'node:test'
import { aimed, type Scenario } from '../../src/commands/scenario/library.ts'
import { ControlError, runScenario } from '../../src/commands/scenario/run.ts'
import { Cancellation } from '../../src/mesh/cancel.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { counts, FakeGateway } from './scenario-gateway.ts'

const scenario: Scenario = {
  name: 'test',
  description: 'Two faults.',
  expect: ['retry: tries.'],
  duration: 10_000,
  faults: [
    { name: 'one', type: 'conn.refused', rate: 1, ttl: '10m', match: { server: '$server', tool: 'a*' } },
    { name: 'two', type: 'rpc.error', rate: 1, ttl: '10m', match: { server: '$server' } },
  ],
}

function start(
  gateway: FakeGateway,
  {
    allowWrites = false,
    status,
  }: { readonly allowWrites?: boolean; readonly status?: (line: string | undefined) => void } = {},
) {
  const clock = new ManualClock()
  const stop = new Cancellation()
  const said: string[] = []
  const options = { server: 'search*', durationMs: 10_000, allowWrites }
  const parts = { gateway, clock, stop, say: (line: string) => void said.push(line), status }
  const run = runScenario(scenario, options, parts)
  run.catch(() => undefined)
  return { clock, stop, said, run }
}

/** Lets the time of a run pass, a look at a time. */
async function pass(clock: ManualClock, seconds: number): Promise<void> {
  for (let second = 0; second < seconds; second++) {
    await clock.advance(1_000)
    for (let turn = 0; turn < 20; turn++) await Promise.resolve()
  }
}

test('faults are injected where they are aimed, by names of their own, and cleared after the run', async () => {
  const gateway = new FakeGateway()
  const { clock, run } = start(gateway)
  await pass(clock, 11)
  const { faults, flaws } = await run
  assert.deepEqual(flaws, [])
  assert.deepEqual(gateway.injected, [
    {
      target: 'search*',
      config: { name: 'one', type: 'conn.refused', rate: 1, match: { tool: 'a*' } },
      durationMs: 40_000,
    },
    { target: 'search*', config: { name: 'two', type: 'rpc.error', rate: 1 }, durationMs: 40_000 },
  ])
  // Their leases begin again at each look.
  assert.deepEqual(
    gateway.renewed,
    Array.from({ length: 10 }, () => ['fault-1', 'fault-2']),
  )
  assert.deepEqual(gateway.cleared, ['fault-1', 'fault-2'])
  assert.deepEqual(
    faults.map(({ name, counts }) => [name, counts?.hits]),
    [
      ['one', 5],
      ['two', 5],
    ],
  )
  assert.equal(clock.pending, 0)
})

test('how a run stands is told every five seconds, or where somebody watches each second in one line that goes', async () => {
  const plain = start(new FakeGateway())
  await pass(plain.clock, 11)
  await plain.run
  const told = plain.said.filter((line) => line.includes(' left; injected: '))
  assert.deepEqual(told, ['5s left; injected: one 5, two 5'])
  const shown: (string | undefined)[] = []
  const watched = start(new FakeGateway(), { status: (line) => void shown.push(line) })
  await pass(watched.clock, 11)
  await watched.run
  assert.equal(
    watched.said.some((line) => line.includes(' left; injected: ')),
    false,
  )
  assert.equal(shown.length, 10)
  assert.match(shown[0] ?? '', /^9s left; injected: one /)
  assert.equal(shown.at(-1), undefined)
})

test('a run in which nothing was injected is invalid, and says what may be the reason', async () => {
  for (const [decided, mode, why] of [
    [0, 'act', /traffic/],
    [7, 'act', /14 calls.*--allow-writes/],
    [7, 'shadow', /shadow/],
  ] as const) {
    const gateway = new FakeGateway()
    gateway.counts = { ...counts, hits: 0, decided }
    gateway.mode = mode
    const { clock, run } = start(gateway)
    await pass(clock, 11)
    const { flaws } = await run
    assert.equal(flaws.length, 1)
    assert.match(flaws[0] ?? '', why)
  }
})

test('a run that hit nothing but what the gateway asks by itself is invalid', async () => {
  const gateway = new FakeGateway()
  gateway.counts = { ...counts, hits: 0, injected: 0, discovery: { ...newFaultCounts(), hits: 5 } }
  const { clock, run } = start(gateway)
  await pass(clock, 11)
  assert.match((await run).flaws.join(), /no call of an agent was hit: the 10 that were/)
})

test('a run in which the engine failed is invalid', async () => {
  const gateway = new FakeGateway()
  gateway.engineErrors = 3
  gateway.onLook = (look) => {
    if (look === 5) gateway.engineErrors = 5
  }
  const { clock, run } = start(gateway)
  await pass(clock, 11)
  assert.deepEqual((await run).flaws, ['the engine failed 2 times'])
})

test('a fault that somebody else ended ends the run, which is invalid', async () => {
  const gateway = new FakeGateway()
  gateway.onLook = (look) => {
    if (look === 4) gateway.end('fault-2')
  }
  const { clock, run } = start(gateway)
  await pass(clock, 6)
  const { flaws, faults } = await run
  assert.match(flaws.join(), /two ended before the run did/)
  assert.equal(faults[1]?.counts?.hits, 5)
  assert.deepEqual(gateway.cleared, ['fault-1', 'fault-2'])
})

test('stopping a run early clears its faults at once', async () => {
  const gateway = new FakeGateway()
  const { clock, stop, run } = start(gateway)
  await pass(clock, 3)
  stop.abort('signal')
  assert.deepEqual((await run).flaws, ['it was stopped early'])
  assert.deepEqual(gateway.cleared, ['fault-1', 'fault-2'])
  assert.equal(clock.pending, 0)
})

test('when the gateway cannot be asked any more, its faults are cleared all the same', async () => {
  const gateway = new FakeGateway()
  gateway.onLook = (look) => {
    if (look === 4) throw new ControlError('gone')
  }
  const { clock, run } = start(gateway)
  await pass(clock, 6)
  await assert.rejects(run, /gone/)
  assert.deepEqual(gateway.cleared, ['fault-1', 'fault-2'])
})

test('a fault that cannot be injected takes those before it with it', async () => {
  const gateway = new FakeGateway()
  const { inject } = gateway
  gateway.inject = function (fault, durationMs) {
    if (this.injected.length === 1) return Promise.reject(new ControlError('refused'))
    return inject.call(this, fault, durationMs)
  }
  await assert.rejects(start(gateway).run, /refused/)
  assert.deepEqual(gateway.cleared, ['fault-1'])
})

test('a run that is longer than faults may last does not begin', async () => {
  const gateway = new FakeGateway()
  gateway.maxTtl = 5_000
  await assert.rejects(start(gateway).run, /maxTtl, which is 5s/)
  assert.deepEqual(gateway.injected, [])
})

test('clearing is tried again, and what stays is named', async () => {
  const gateway = new FakeGateway()
  const { clear } = gateway
  let tries = 0
  gateway.clear = function (id) {
    if (id === 'fault-2' || ++tries < 3) return Promise.reject(new ControlError('busy'))
    return clear.call(this, id)
  }
  const { clock, run, said } = start(gateway)
  await pass(clock, 11)
  await run
  assert.deepEqual(gateway.cleared, ['fault-1'])
  assert.match(said.join('\n'), /cannot clear two \(fault-2\).*busy/)
})

test('with leave to write, every fault may hit tools that write', async () => {
  const gateway = new FakeGateway()
  const { stop, run } = start(gateway, { allowWrites: true })
  await Promise.resolve()
  stop.abort('signal')
  await run
  for (const { config } of gateway.injected as { config: { allowWrites?: boolean } }[])
    assert.equal(config.allowWrites, true)
})

test('a fault that names servers of its own is aimed at these', async () => {
  const fault = { name: 'own', type: 'conn.refused', rate: 1, match: { server: 'backup', tool: 'a*' } }
  assert.deepEqual(aimed(fault, { server: 'search*', allowWrites: false }), {
    target: 'backup',
    config: { name: 'own', type: 'conn.refused', rate: 1, match: { tool: 'a*' } },
  })
})
