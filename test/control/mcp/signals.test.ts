import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Signals } from '../../../src/control/mcp/signals.ts'
import { RecentTraffic, UNLISTED } from '../../../src/control/mcp/traffic.ts'
import type { Call, Outcome } from '../../../src/mesh/call.ts'
import { recordOf, specOf } from '../../experiments/guarded/world.ts'
import { ManualClock } from '../../support/manual-clock.ts'

const call = (server: string, attempts = 1, tenant = 't') =>
  ({ server, tool: 'read', tenant, record: { attempts, intent: undefined } }) as unknown as Call

const answered = {
  kind: 'answered',
  result: { text: '', value: { result: {} }, status: 200 },
  verdict: 'unchecked',
} as Outcome

test('traffic without calls is unknown, and figures are of the last 15 minutes', async () => {
  const clock = new ManualClock()
  const traffic = new RecentTraffic(clock)
  assert.equal(
    traffic.of(() => true),
    undefined,
  )
  for (let n = 0; n < 60; n++) traffic.add(call('a', 1, `tenant ${n % 3}`), answered, 20)
  await clock.advance(60_000)
  const recent = traffic.of((server) => server === 'a')!
  assert.equal(recent.figures.calls, 60)
  assert.equal(recent.tenants, 3)
  assert.equal(recent.perMinute, 60)
  assert.equal(
    traffic.of((server) => server === 'b'),
    undefined,
  )
  await clock.advance(16 * 60_000)
  assert.equal(
    traffic.of(() => true),
    undefined,
  )
})

test('calls of tools in no list do not take the place of listed tools', () => {
  const traffic = new RecentTraffic(new ManualClock())
  for (let n = 0; n < 7; n++) traffic.add(call('a', 1, `tenant ${n}`), answered, 20)
  for (let n = 0; n < 2_000; n++) {
    const bogus = { ...call('a'), tool: `bogus ${n}` }
    traffic.add(bogus, answered, 20, false)
  }
  assert.equal(traffic.of((_, tool) => tool === 'read')?.tenants, 7)
  assert.equal(traffic.of((_, tool) => tool === UNLISTED)?.figures.calls, 2_000)
  for (let n = 0; n < 2_000; n++) {
    traffic.add({ ...call('a'), tool: `listed ${n}` }, answered, 20)
    traffic.add(call('a'), answered, 20)
  }
  assert.equal(traffic.of((_, tool) => tool === 'read')?.tenants, 8)
})

test('a signal that moved before an incident is a precursor when the signal moves again', async () => {
  const clock = new ManualClock()
  const traffic = new RecentTraffic(clock)
  const signals = new Signals(
    clock,
    traffic,
    () => ['a'],
    () => [],
  )
  const minutes = async (count: number, tookMs: number) => {
    for (let n = 0; n < count; n++) {
      for (let c = 0; c < 20; c++) traffic.add(call('a'), answered, tookMs)
      await clock.advance(60_000)
    }
  }
  await minutes(30, 20)
  assert.deepEqual(signals.precursors(), [])
  await minutes(3, 80)
  assert.deepEqual(signals.precursors(), [], 'a signal without an incident is no precursor')
  signals.incident('a', 'incident-1')
  signals.incident('a', 'incident-1')
  await minutes(60, 20)
  assert.deepEqual(signals.precursors(), [])
  await minutes(3, 80)
  assert.deepEqual(signals.precursors(), [
    { server: 'a', signal: 'p95 above 1.5 times the usual', preceded: 1, incidents: 1 },
  ])
  signals.close()
})

test('three opened breakers within 15 minutes are a signal', () => {
  const clock = new ManualClock()
  const signals = new Signals(
    clock,
    new RecentTraffic(clock),
    () => [],
    () => [],
  )
  for (let n = 0; n < 3; n++) signals.transition('a')
  signals.incident('a', 'incident-1')
  assert.deepEqual(
    signals.precursors().map(({ signal }) => signal),
    ['3 or more breakers or gates opened'],
  )
  signals.close()
})

test('a run that comes near a limit of its gate is a signal of its targets until its end', async () => {
  const clock = new ManualClock()
  const spec = specOf()
  const rule = { metric: 'error_ratio', above: 0.1, of: 'treatment', for: 0 } as const
  let run = recordOf(spec, { nearest: { rule, value: 0.079, calls: 50 } })
  const signals = new Signals(
    clock,
    new RecentTraffic(clock),
    () => ['a', 'b'],
    () => [run],
  )
  signals.incident('a', 'incident-1')
  assert.deepEqual(signals.precursors(), [], 'the run is further than 20% from its limit')
  run = { ...run, nearest: { rule, value: 0.085, calls: 50 } }
  await clock.advance(60_000)
  signals.incident('a', 'incident-2')
  signals.incident('b', 'incident-3')
  const near = {
    server: 'a',
    signal: 'a run came within 20% of a limit of its gate',
    preceded: 1,
    incidents: 2,
  }
  assert.deepEqual(signals.precursors(), [near], 'the server b is no target of the run')
  run = { ...run, endedAt: clock.wall() }
  await clock.advance(4 * 60_000)
  assert.deepEqual(signals.precursors(), [near])
  await clock.advance(60_000)
  assert.deepEqual(signals.precursors(), [])
  signals.close()
})
