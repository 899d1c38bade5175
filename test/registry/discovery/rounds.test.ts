import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Rounds } from '../../../src/registry/discovery.ts'
import { ManualClock } from '../../support/manual-clock.ts'

const PAUSE_MS = 1_000

/** Rounds of `lastsMs` each, and their starts. */
function setUp({ lastsMs = 0 } = {}) {
  const clock = new ManualClock()
  const from = clock.now()
  const began: number[] = []
  const rounds = new Rounds(clock, async () => {
    began.push(clock.now() - from)
    if (lastsMs > 0) await new Promise<void>((resolve) => clock.after(lastsMs, resolve))
    return PAUSE_MS
  })
  return { clock, rounds, began }
}

test('a finished round is followed by another after the requested pause', async () => {
  const { clock, rounds, began } = setUp()
  rounds.within(0)
  await clock.advance(2 * PAUSE_MS)
  assert.deepEqual(began, [0, 1_000, 2_000])
})

test('the earliest requested round counts, and there is one round', async () => {
  const { clock, rounds, began } = setUp()
  for (const delayMs of [500, 200, 300]) rounds.within(delayMs)
  await clock.advance(600)
  assert.deepEqual(began, [200])
  assert.equal(clock.pending, 1)
})

test('a request for a round made during a round waits for the end of this round, and for nothing else', async () => {
  const { clock, rounds, began } = setUp({ lastsMs: 300 })
  rounds.within(0)
  await clock.advance(100)
  assert.equal(rounds.running, true)
  for (let wish = 0; wish < 3; wish++) {
    rounds.within(0)
    await clock.advance(10)
  }
  await clock.advance(400)
  assert.deepEqual(began, [0, 300])
})

test('a forgotten request for a round has no effect, in a round or before it', async () => {
  const { clock, rounds, began } = setUp({ lastsMs: 300 })
  rounds.within(0)
  await clock.advance(100)
  rounds.within(0)
  await clock.advance(10)
  rounds.within(50)
  rounds.forget()
  await clock.advance(300 + PAUSE_MS - 111)
  assert.deepEqual(began, [0])
  await clock.advance(1)
  assert.deepEqual(began, [0, 1_300])
})

test('after a stop, the round under way is the last', async () => {
  const { clock, rounds, began } = setUp({ lastsMs: 300 })
  rounds.within(0)
  await clock.advance(100)
  rounds.within(500)
  rounds.stop()
  rounds.within(0)
  await clock.advance(10_000)
  assert.deepEqual(began, [0])
  assert.equal(clock.pending, 0)
})
