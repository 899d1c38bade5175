import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Reachability } from '../../src/registry/server.ts'
import type { Upstream } from '../../src/upstreams/upstream.ts'
import { ManualClock } from '../support/manual-clock.ts'

/** Endpoints that are there or not as a test says, and what is known of them. */
function setUp(count = 1) {
  const clock = new ManualClock()
  const there = Array.from({ length: count }, () => true)
  const probes = there.map(() => 0)
  const hangs = new Set<number>()
  const back: number[] = []
  const replicas = there.map((_, index) => ({
    open: () => Promise.reject(new Error('nobody opens it')),
    close: () => Promise.resolve(),
    probe() {
      probes[index]!++
      return hangs.has(index) ? new Promise<boolean>(() => {}) : Promise.resolve(there[index] === true)
    },
  })) satisfies Upstream[]
  const reachability = new Reachability({ replicas, clock, onBack: (replica) => back.push(replica) })
  return { clock, there, probes, hangs, back, reachability }
}

test('an endpoint that could not be reached is probed until it can be', async () => {
  const { clock, there, probes, back, reachability } = setUp()
  there[0] = false
  reachability.suspect(0, true)
  await clock.advance(1_000)
  assert.equal(reachability.backAt(0), -Infinity)
  assert.ok(probes[0]! >= 15 && probes[0]! <= 20, `${probes[0]} probes in the first second`)
  there[0] = true
  await clock.advance(50)
  assert.deepEqual(back, [0])
  assert.ok(reachability.backAt(0) >= 1_000)
  const before = probes[0]
  await clock.advance(60_000)
  assert.equal(probes[0], before, 'nothing is probed that works')
  assert.equal(clock.pending, 0)
})

test('one that was there all the time has not come back', async () => {
  const { clock, probes, back, reachability } = setUp()
  reachability.suspect(0, false)
  await clock.advance(0)
  assert.deepEqual([probes[0], back, reachability.backAt(0)], [1, [], -Infinity])
  assert.equal(clock.pending, 0)
})

test('one that does not answer a probe is as good as gone', async () => {
  const { clock, hangs, back, reachability } = setUp()
  hangs.add(0)
  reachability.suspect(0, false)
  await clock.advance(1_000)
  hangs.clear()
  await clock.advance(100)
  assert.deepEqual(back, [0])
})

test('a long outage costs a probe in five seconds, and calls that fail meanwhile cost none', async () => {
  const { clock, there, probes, reachability } = setUp()
  there[0] = false
  reachability.suspect(0, true)
  for (let second = 0; second < 120; second++) {
    await clock.advance(1_000)
    reachability.suspect(0, true)
  }
  const before = probes[0]!
  for (let second = 0; second < 60; second++) await clock.advance(1_000)
  assert.ok(probes[0]! - before <= 12, `${probes[0]! - before} probes in a minute`)
})

test('replicas are watched each for itself, and nothing goes on after the end', async () => {
  const { clock, there, back, reachability } = setUp(2)
  there.fill(false)
  reachability.suspect(0, true)
  reachability.suspect(1, true)
  there[1] = true
  await clock.advance(100)
  assert.deepEqual(back, [1])
  reachability.stop()
  assert.equal(clock.pending, 0)
  reachability.suspect(0, true)
  assert.equal(clock.pending, 0)
})
