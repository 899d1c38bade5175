import assert from 'node:assert/strict'
import { newFaultCounts } from '../../src/chaos/accounting/counts.ts'
import { test } from 'node:test'
import { aimed, type Scenario } from '../../src/commands/break/scenario/library.ts'
import { ControlError, countersIn, faultsAt } from '../../src/commands/break/scenario/gateway.ts'
import { assertionsOf } from '../../src/commands/break/scenario/assertions.ts'
import { judgedRun, statusOf } from '../../src/commands/break/scenario/result.ts'
import type { Output, StatusText } from '../../src/commands/shared/arguments.ts'
import { type OwnTraffic, runScenario } from '../../src/commands/break/scenario/run.ts'
import { Cancellation } from '../../src/mesh/cancel.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { counts, FakeGateway } from './scenario-gateway.ts'

const scenario: Scenario = {
  name: 'test',
  description: 'Two faults.',
  assert: { fates: { surfaced: { atLeast: 1 } } },
  hits: 'one_server',
  traffic: 20,
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
    traffic,
    assert: claims = scenario.assert,
  }: {
    readonly allowWrites?: boolean
    readonly status?: Output['status']
    readonly traffic?: OwnTraffic
    readonly assert?: Scenario['assert']
  } = {},
) {
  const clock = new ManualClock()
  const stop = new Cancellation()
  const said: string[] = []
  const hit = ['search-1', 'search-2']
  const options = { server: 'search*', hit, others: [], durationMs: 10_000, allowWrites }
  const parts = { gateway, clock, stop, say: (line: string) => void said.push(line), status }
  const run = runScenario({ ...scenario, assert: claims }, options, { ...parts, ...(traffic && { traffic }) })
  run.catch(() => undefined)
  return { clock, stop, said, run }
}

/** Advances the clock through a run, one look at a time. */
async function pass(clock: ManualClock, seconds: number): Promise<void> {
  for (let second = 0; second < seconds; second++) {
    await clock.advance(1_000)
    for (let turn = 0; turn < 20; turn++) await Promise.resolve()
  }
}

test('a run with all its hits still held at its end proves nothing', async () => {
  const gateway = new FakeGateway()
  gateway.counts = { ...counts, hits: 3, concurrent: 3, masked: 0, surfaced: 0, escaped: 0 }
  const { clock, run } = start(gateway)
  await pass(clock, 14)
  const held = /^no hit call has ended: 6 were still held when the faults were cleared$/
  assert.match((await run).flaws.join(), held)
})

test('fates known only after the calls are judged, and open fates are reported', async () => {
  const claims = { fates: { masked: { atLeast: 10 }, surfaced: { atMost: 1 } } }
  const judgedWith = async (later: object) => {
    const gateway = new FakeGateway()
    gateway.counts = { ...counts, masked: 0, surfaced: 0, escaped: 0, resent: 3 }
    const { clear } = gateway
    gateway.clear = function (id) {
      this.counts = { ...this.counts, ...later }
      return clear.call(this, id)
    }
    const { clock, run } = start(gateway, { assert: claims })
    await pass(clock, 14)
    const outcome = await run
    const { faults, evidence } = outcome
    const { checks } = judgedRun(outcome, assertionsOf(claims))
    assert.ok(evidence)
    const { open, ...fates } = evidence.fates
    const injected = faults.reduce((sum, { counts: seen }) => sum + (seen?.injected ?? 0), 0)
    assert.equal(
      Object.values(fates).reduce((sum, fate) => sum + fate, open),
      injected,
    )
    return checks.map(({ verdict, measured }) => `${verdict} ${measured}`)
  }
  assert.deepEqual(await judgedWith({ masked: 5 }), ['pass 10', 'pass 0'])
  assert.deepEqual(await judgedWith({ surfaced: 5 }), ['fail 0', 'fail 10'])
  assert.deepEqual(await judgedWith({ masked: 4 }), [
    'undecided not decided: 8 to 10, 2 have not ended',
    'undecided not decided: 0 to 2, 2 have not ended',
  ])
  assert.deepEqual(await judgedWith({ masked: 4, surfaced: 1 }), ['fail 8', 'fail 2'])
})

test('a run with only late faults says so', async () => {
  const gateway = new FakeGateway()
  gateway.counts = { ...counts, ...newFaultCounts(), decided: 4, injected: 3, notReached: 3 }
  const { clock, run } = start(gateway)
  await pass(clock, 11)
  assert.deepEqual((await run).flaws, [
    'no call was hit: 6 selected calls were over before the faults took effect',
  ])
})

test('a failing run is invalid if its faults changed nothing, and failed if they changed something', async () => {
  const claims = { fates: { surfaced: { atLeast: 1 } } }
  const judgedWith = async (more: object) => {
    const gateway = new FakeGateway()
    gateway.counts = { ...counts, masked: 5, surfaced: 0, escaped: 0, ...more }
    const { clock, run } = start(gateway, { assert: claims })
    await pass(clock, 11)
    return judgedRun(await run, assertionsOf(claims))
  }
  const idle = await judgedWith({})
  assert.deepEqual(idle.flaws, [
    'the faults hit 10 calls and changed neither the outcome nor the time of any',
  ])
  assert.equal(statusOf(idle), 'invalid')
  for (const effect of [
    { resent: 1 },
    { rejections: 1 },
    { masked: 4, delayed: 1 },
    { masked: 4, escaped: 1 },
  ])
    assert.equal(statusOf(await judgedWith(effect)), 'failed', JSON.stringify(effect))
})

test('a run of which some hits have ended proves something, however many calls are held at its end', async () => {
  const gateway = new FakeGateway()
  gateway.counts = { ...counts, injected: 10, hits: 10, concurrent: 16, masked: 7, surfaced: 0, escaped: 0 }
  const { clock, run } = start(gateway)
  await pass(clock, 14)
  assert.deepEqual((await run).flaws, [])
})

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
  // Every look renews their leases.
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

test('progress of a run is printed every five seconds, or each second on a terminal line', async () => {
  const plain = start(new FakeGateway())
  await pass(plain.clock, 11)
  await plain.run
  const told = plain.said.filter((line) => line.includes(' left; injected: '))
  assert.deepEqual(told, ['5s left; injected: one 5, two 5'])
  const shown: StatusText[] = []
  const watched = start(new FakeGateway(), { status: (line) => void shown.push(line) })
  await pass(watched.clock, 11)
  await watched.run
  assert.equal(
    watched.said.some((line) => line.includes(' left; injected: ')),
    false,
  )
  assert.equal(shown.length, 10)
  assert.match(String(shown[0]), /^\[##-+\] 9s left; injected: one /)
  assert.equal(shown.at(-1), undefined)
})

test('a run in which nothing was injected is invalid, and says what may be the reason', async () => {
  for (const [decided, mode, why] of [
    [0, 'act', /traffic/],
    [7, 'act', /14 matching calls.*no call was drawn.*--allow-writes/],
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

test('a run whose faults found nothing to do says so', async () => {
  const gateway = new FakeGateway()
  gateway.counts = { ...counts, hits: 0, decided: 7, notApplicable: 7 }
  const { clock, run } = start(gateway)
  await pass(clock, 11)
  assert.match((await run).flaws.join(), /the fault had nothing to change in 14 of 14 matching calls/)
})

test('a run that hit only the gateway’s own requests is invalid', async () => {
  const gateway = new FakeGateway()
  gateway.counts = { ...counts, ...newFaultCounts(), discovery: { ...newFaultCounts(), hits: 5 } }
  const { clock, run } = start(gateway)
  await pass(clock, 11)
  assert.match((await run).flaws.join(), /no agent's call was hit, only 10 of the gateway's own requests/)
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

test('a fault ended by somebody else ends the run, which is invalid', async () => {
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

test('after a stop, clearing is tried once, and a gateway that does not answer is asked nothing more', async () => {
  const gateway = new FakeGateway()
  const tries: string[] = []
  gateway.clear = (id) => {
    tries.push(id)
    return Promise.reject(new ControlError('no answer'))
  }
  const { clock, stop, said, run } = start(gateway)
  await pass(clock, 3)
  stop.abort('signal')
  const looks = gateway.looks
  const { flaws } = await run
  assert.deepEqual(flaws, ['it was stopped early'])
  assert.deepEqual(tries, ['fault-1', 'fault-2'])
  assert.ok(gateway.looks <= looks + 1, 'only the counts at the end of the faults')
  assert.equal(said.filter((line) => line.includes('it ends by itself')).length, 2)
})

test('if the gateway no longer answers other requests, its faults are still cleared', async () => {
  const gateway = new FakeGateway()
  gateway.onLook = (look) => {
    if (look === 4) throw new ControlError('gone')
  }
  const { clock, run } = start(gateway)
  await pass(clock, 6)
  await assert.rejects(run, /gone/)
  assert.deepEqual(gateway.cleared, ['fault-1', 'fault-2'])
})

test('a run reports a fault without effect, even when other faults hit calls', async () => {
  const gateway = new FakeGateway()
  gateway.warnings = [
    'match.tool: "a*" matches no tool of search-1: the fault hits nothing until there is such a tool',
  ]
  gateway.countsById['fault-2'] = { ...newFaultCounts(), decided: 7 }
  const { clock, run, said } = start(gateway)
  await pass(clock, 11)
  assert.deepEqual((await run).flaws, [])
  assert.ok(said.includes(`one: ${gateway.warnings[0]}`))
  assert.ok(said.some((line) => line.startsWith('two: nothing was injected into 7 matching calls:')))
  assert.ok(!said.some((line) => line.startsWith('one: nothing')))
})

test('a fault that cannot be injected removes the faults injected before', async () => {
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

test('clearing is tried again, and remaining faults are named', async () => {
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

test('with permission to write, every fault may hit tools that write', async () => {
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

/** Traffic that does nothing by default. */
const idle: OwnTraffic = {
  calls: [],
  tools: ['search-1/find'],
  settle: () => Promise.resolve([]),
  run: () => Promise.resolve(),
  listed: () => Promise.resolve([]),
}

test('if calls fail already, nothing is injected', async () => {
  const gateway = new FakeGateway()
  const traffic = { ...idle, settle: () => Promise.reject(new ControlError('calls fail already')) }
  await assert.rejects(start(gateway, { traffic }).run, /calls fail already/)
  assert.deepEqual(gateway.injected, [])
})

test('a run stopped before its calls succeed injects nothing and makes no call', async () => {
  const gateway = new FakeGateway()
  const settled = new Cancellation()
  const settle = () =>
    new Promise<readonly string[]>((resolve) => settled.addEventListener('abort', () => resolve([])))
  let runs = 0
  const make = () => Promise.resolve(void runs++)
  const { stop, run } = start(gateway, { traffic: { ...idle, settle, run: make } })
  await Promise.resolve()
  stop.abort('signal')
  settled.abort('over')
  const { flaws, evidence } = await run
  assert.equal(runs, 0)
  assert.deepEqual(flaws, ['it was stopped early'])
  assert.equal(evidence, undefined)
  assert.deepEqual(gateway.injected, [])
})

test('after the faults a run waits for breakers to close, for as long as the scenario allows and a little more', async () => {
  for (const [closesAfter, tookMs] of [
    [4, 5_000],
    [60, 23_000],
  ] as const) {
    const gateway = new FakeGateway()
    const { clock, run } = start(gateway, { assert: { breaker: { closes: { within: 20_000 } } } })
    await pass(clock, 1)
    gateway.open = ['search-1/find']
    await pass(clock, 10)
    assert.deepEqual(gateway.cleared, ['fault-1', 'fault-2'], 'injected faults go first')
    await pass(clock, closesAfter)
    gateway.open = []
    await pass(clock, 30)
    const { evidence } = await run
    assert.equal(evidence?.faultsEndedAt, 10_000)
    assert.ok(evidence.breakers.some(({ open }) => open.length > 0))
    const last = evidence.breakers.at(-1)
    assert.ok(last !== undefined && Math.abs(last.at - 10_000 - tookMs) <= 1_000, String(last?.at))
    assert.equal(clock.pending, 0)
  }
})

test('a run begins with breakers as new, unless it only observes', async () => {
  for (const [traffic, asNew] of [
    [idle, ['search-1/find']],
    [undefined, []],
  ] as const) {
    const gateway = new FakeGateway()
    const { clock, run } = start(gateway, traffic && { traffic })
    await pass(clock, 11)
    await run
    assert.deepEqual(gateway.asNew, asNew)
  }
})

test('a breaker that was open before the run is not blamed on the faults', async () => {
  const gateway = new FakeGateway()
  gateway.open = ['search-1/write']
  const { clock, run } = start(gateway)
  await pass(clock, 11)
  const { evidence } = await run
  assert.ok(evidence?.breakers.every(({ open }) => open.length === 0))
})

test('a run sums counts of metrics over the hit servers', () => {
  const metrics = `
# TYPE breakwater_tool_calls_total counter
breakwater_tool_calls_total{server="a",tool="find",result="returned"} 5
breakwater_tool_calls_total{server="b",tool="find",result="returned"} 99
breakwater_upstream_attempts_total{server="a",tool="find",outcome="returned",verdict="drift"} 3
breakwater_upstream_attempts_total{server="a",tool="find",outcome="timeout"} 2
breakwater_retries_total{server="a",decision="sent"} 1
breakwater_retries_total{server="a",decision="budget"} 7
breakwater_rejections_total{server="a",reason="breaker_open"} 4`
  assert.deepEqual(countersIn(metrics, ['a']), {
    calls: 5,
    attempts: 5,
    retries: 1,
    rejections: { breaker_open: 4 },
    verdicts: { drift: 3 },
  })
})

test('counts are no evidence unless the calls of the run are among them', async () => {
  const call = { server: 'search-1', tool: 'find', isHit: true, startedAt: 0, endedAt: 10, ending: 'result' }
  const calls = [call, call, { ...call, ending: 'connection broken' }, { ...call, isHit: false }]
  for (const [traffic, after, isKnown] of [
    [{ ...idle, calls }, 2, true],
    [{ ...idle, calls }, 1, false],
    [undefined, 1, true],
    [undefined, 0, false],
  ] as const) {
    const gateway = new FakeGateway()
    const none = await gateway.counters()
    let reads = 0
    gateway.counters = () => Promise.resolve({ ...none, calls: reads++ === 0 ? 0 : after })
    const { clock, run } = start(gateway, { assert: { retries: 'none' }, ...(traffic && { traffic }) })
    await pass(clock, 11)
    const { evidence } = await run
    assert.equal(evidence?.counted?.calls, isKnown ? after : undefined)
  }
})

test('a run reports answers that no gateway gives, and never takes such answers for success', async () => {
  const answering = (value: unknown) => faultsAt(() => Promise.resolve({ ok: true, value }))
  for (const odd of [{}, 'fine', [5], [{ server: 'search-1' }], [{ server: 'search-1', state: 'fine' }]])
    await assert.rejects(answering(odd).breakers(['search-1']), ControlError, JSON.stringify(odd))
  const breakers = [{ set: '', server: 'search-1', state: 'open' }]
  assert.deepEqual(await answering(breakers).breakers(['search-1']), ['search-1/_other'])
  for (const odd of [{}, [{}], [null]]) await assert.rejects(answering(odd).servers(), ControlError)
})

test('a state of the gateway that lacks anything a run looks at is an error of the gateway', async () => {
  const gateway = new FakeGateway()
  await gateway.inject({}, 1)
  const whole = await gateway.state()
  const answering = (value: unknown) =>
    faultsAt(() => Promise.resolve({ ok: true, value: JSON.parse(JSON.stringify(value)) as unknown }))
  const [fault] = whole.faults
  assert.ok(fault)
  const states = { ...whole, maxTtl: 1 }
  assert.equal((await answering(states).state()).faults[0]?.hits, fault.hits)
  for (const odd of [
    {},
    [],
    { ...states, faults: 5 },
    { ...states, faults: [null] },
    { ...states, faults: [{ id: 'fault-1' }] },
    { ...states, faults: [{ ...fault, discovery: undefined }] },
    { ...states, faults: [{ ...fault, hits: 'many' }] },
    { ...states, maxTtl: 'long' },
  ])
    await assert.rejects(answering(odd).state(), ControlError, JSON.stringify(odd))
})
