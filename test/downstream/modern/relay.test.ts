import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Exchange } from '../../../src/downstream/modern/exchange.ts'
import { Relay } from '../../../src/downstream/modern/relay.ts'
import type { Tenancy } from '../../../src/downstream/tenancy.ts'
import type { Visit } from '../../../src/downstream/visit.ts'
import { Live } from '../../../src/mesh/live.ts'
import type { GatewayGeneration } from '../../../src/registry/generation.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { testGuards } from '../test-guards.ts'

test('a request that cannot be renamed holds neither its caller nor its generation', () => {
  const clock = new ManualClock()
  let closed = 0
  const generation = () => ({ patienceMs: 1_000, close: () => closed++ }) as unknown as GatewayGeneration
  const live = new Live(generation(), clock)
  const relay = new Relay(live, clock, testGuards(clock))
  const caller = { calls: 0, mintId: () => 'breakwater-1' }
  const exchange = { caller, envelope: {}, signal: {} } as unknown as Exchange
  const broken = { text: '{}', value: Object.defineProperty({}, 'params', { get: () => assert.fail() }) }
  assert.throws(() => relay.run({ headers: {} } as Visit, exchange, {} as Tenancy, broken))
  assert.equal(caller.calls, 0)
  live.swap(generation())
  assert.equal(closed, 1)
})
