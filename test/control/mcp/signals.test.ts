import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Signals } from '../../../src/control/mcp/signals.ts'
import { RecentTraffic } from '../../../src/control/mcp/traffic.ts'
import type { Call, Outcome } from '../../../src/mesh/call.ts'
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

test('a signal that moved before an incident is a precursor when the signal moves again', async () => {
  const clock = new ManualClock()
  const traffic = new RecentTraffic(clock)
  const signals = new Signals(clock, traffic, () => ['a'])
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
  const signals = new Signals(clock, new RecentTraffic(clock), () => [])
  for (let n = 0; n < 3; n++) signals.transition('a')
  signals.incident('a', 'incident-1')
  assert.deepEqual(
    signals.precursors().map(({ signal }) => signal),
    ['3 or more breakers or gates opened'],
  )
  signals.close()
})
