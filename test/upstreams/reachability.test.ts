import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Reachability } from '../../src/upstreams/reachability.ts'
import type { Upstream } from '../../src/upstreams/upstream.ts'
import { ManualClock } from '../support/manual-clock.ts'

/** Endpoints the test switches on and off, and the gateway's knowledge of them. */
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
  // At 50, 125, 238, 406 and 659 ms: each pause is 1.5 times the previous pause.
  assert.equal(probes[0], 5)
  there[0] = true
  await clock.advance(500)
  assert.deepEqual(back, [0])
  assert.ok(reachability.backAt(0) >= 1_000)
  const before = probes[0]
  await clock.advance(60_000)
  assert.equal(probes[0], before, 'a working endpoint is not probed')
  assert.equal(clock.pending, 0)
})

test('an endpoint that leaves probes without an answer is back with an answer to the gateway', async () => {
  const { clock, there, probes, back, reachability } = setUp(2)
  there[0] = false
  const reached = reachability.reached(0)
  await clock.advance(1_000)
  reachability.found(1)
  assert.equal(reachability.isLost(0), true)
  reachability.found(0)
  assert.equal(await reached, true)
  assert.deepEqual([reachability.isLost(0), reachability.backAt(0), back], [false, 1_000, []])
  const before = probes[0]
  await clock.advance(60_000)
  assert.equal(probes[0], before)
  assert.equal(clock.pending, 0)
})

test('an endpoint reachable all the time has not come back', async () => {
  const { clock, probes, back, reachability } = setUp()
  reachability.suspect(0, false)
  await clock.advance(0)
  assert.deepEqual([probes[0], back, reachability.backAt(0)], [1, [], -Infinity])
  assert.equal(clock.pending, 0)
})

test('an endpoint only a fault made unreachable is found by a probe, and does not count as returned', async () => {
  const { clock, there, back, reachability } = setUp()
  reachability.suspect(0, true, true)
  assert.equal(reachability.isLost(0), true)
  await clock.advance(50)
  assert.deepEqual([reachability.isLost(0), reachability.backAt(0), back], [false, 50, []])
  reachability.suspect(0, true, true)
  there[0] = false
  await clock.advance(1_000)
  there[0] = true
  await clock.advance(500)
  assert.deepEqual(back, [0], 'a probe failed before the return')
  reachability.suspect(0, true, true)
  reachability.suspect(0, true)
  await clock.advance(50)
  assert.deepEqual(back, [0, 0], 'a call failed before the return')
})

test('an endpoint that does not answer a probe counts as gone', async () => {
  const { clock, hangs, back, reachability } = setUp()
  hangs.add(0)
  reachability.suspect(0, false)
  await clock.advance(1_000)
  hangs.clear()
  await clock.advance(100)
  assert.deepEqual(back, [0])
})

test('an outage of seconds costs two probes a second', async () => {
  const { clock, there, probes, reachability } = setUp()
  there[0] = false
  reachability.suspect(0, true)
  await clock.advance(10_000)
  const before = probes[0]!
  await clock.advance(40_000)
  assert.equal(probes[0]! - before, 80)
})

test('a replica counts as lost from the first call or probe that does not reach it until one does', async () => {
  const { clock, there, reachability } = setUp(2)
  there.fill(false)
  reachability.suspect(0, true)
  reachability.suspect(1, false)
  assert.deepEqual([reachability.isLost(0), reachability.isLost(1)], [true, false])
  await clock.advance(0)
  assert.deepEqual([reachability.isLost(0), reachability.isLost(1)], [true, true])
  there.fill(true)
  await clock.advance(500)
  assert.deepEqual([reachability.isLost(0), reachability.isLost(1)], [false, false])
})

test('a caller that waits for an undoubted replica hears at once that it is reachable', async () => {
  const { clock, probes, back, reachability } = setUp()
  let heard = 0
  void reachability.reached(0)?.then(() => heard++)
  await clock.advance(0)
  assert.deepEqual([heard, probes[0], back], [1, 1, []])
})

test('all who wait for a lost replica hear of the probe that reaches it, once', async () => {
  const { clock, there, reachability } = setUp()
  there[0] = false
  reachability.suspect(0, true)
  const heard: string[] = []
  void reachability.reached(0)?.then(() => heard.push('first'))
  await clock.advance(5_000)
  void reachability.reached(0)?.then(() => heard.push('second'))
  assert.deepEqual(heard, [])
  there[0] = true
  await clock.advance(500)
  assert.deepEqual(heard, ['first', 'second'])
  await clock.advance(60_000)
  assert.equal(heard.length, 2)
})

test('nobody can wait for a replica that cannot be probed, or that nobody watches any more', () => {
  const clock = new ManualClock()
  const unprobed = new Reachability({ replicas: [{}], clock, onBack: () => assert.fail('it came back') })
  assert.equal(unprobed.reached(0), undefined)
  unprobed.suspect(0, true)
  assert.equal(unprobed.isLost(0), false)
  const { reachability } = setUp()
  reachability.stop()
  assert.equal(reachability.reached(0), undefined)
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

test('an endpoint that works is probed once a second, however often a tool of it fails', async () => {
  const { clock, probes, reachability } = setUp()
  for (let at = 0; at < 5_000; at += 10) {
    reachability.suspect(0, false)
    await clock.advance(10)
  }
  assert.equal(probes[0], 5)
  // A caller waiting for a sign of life does not wait for the next second.
  assert.equal(
    await Promise.all([reachability.reached(0), clock.advance(0)]).then(([isThere]) => isThere),
    true,
  )
  assert.equal(probes[0], 6)
})
