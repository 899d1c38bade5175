import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { ModernCall } from '../../../src/downstream/modern/call.ts'
import { Relay } from '../../../src/downstream/modern/relay.ts'
import type { Tenancy } from '../../../src/access/caller.ts'
import type { InboundRequest } from '../../../src/downstream/endpoint.ts'
import { liveWith } from '../../support/live.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { generationOf } from '../test-generation.ts'
import { testGuards } from '../test-guards.ts'

test('a request that cannot be renamed holds neither its caller nor its generation', () => {
  const clock = new ManualClock()
  let closed = 0
  const generation = () => generationOf(new Map(), clock, () => closed++)
  const live = liveWith(generation(), clock)
  const relay = new Relay(live, clock, testGuards(clock))
  const caller = { calls: 0, mintId: () => 'breakwater-1' }
  const exchange = { caller, envelope: {}, signal: {} } as unknown as ModernCall
  const broken = { text: '{}', value: Object.defineProperty({}, 'params', { get: () => assert.fail() }) }
  assert.throws(() => relay.run({ headers: {} } as InboundRequest, exchange, {} as Tenancy, broken))
  assert.equal(caller.calls, 0)
  live.swap(generation())
  assert.equal(closed, 1)
})
