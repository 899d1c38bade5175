import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createPolicyContext } from '../../src/gateway/policy-context.ts'
import { Backoff } from '../../src/policies/breaker/state-machine.ts'
import { createMetrics } from '../../src/telemetry/metrics.ts'
import { silent } from '../support/log.ts'
import { ManualClock } from '../support/manual-clock.ts'

const config = { open: 5_000, maxOpen: 60_000, jitter: 0.2 }

/** Returns how long the breakers of a process stay open, opening by opening. */
function openTimes(seed?: number): readonly number[] {
  const { random } = createPolicyContext(new ManualClock(), silent, createMetrics(), undefined, seed)
  const backoff = new Backoff(config, random)
  return Array.from({ length: 8 }, () => backoff.next('search/query/endpoint'))
}

test('breakers of two processes do not try their servers again at the same time', () => {
  const times = Array.from({ length: 20 }, () => openTimes().join())
  assert.equal(new Set(times).size, times.length)
})

test('with a seed, all draws of a process are known', () => {
  assert.deepEqual(openTimes(7), openTimes(7))
  assert.notDeepEqual(openTimes(7), openTimes(8))
})
