import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createKeyedRandom } from '../../../src/mesh/keyed-random.ts'
import { Backoff } from '../../../src/policies/breaker/state-machine.ts'
import { bad, good, setUp, times } from './rig.ts'

const settings = { open: 5_000, maxOpen: 60_000, jitter: 0.2 }

test('the open time doubles with each failed probe, up to its maximum', async () => {
  const { clock, send, sendAll, snapshot } = setUp()
  await sendAll(times(5, bad))
  const openTimes = []
  for (let i = 0; i < 6; i++) {
    const { openForMs = 0 } = snapshot()
    openTimes.push(openForMs)
    await clock.advance(openForMs)
    await send(bad)
  }
  assert.deepEqual(openTimes, [5_000, 10_000, 20_000, 40_000, 60_000, 60_000])
})

test('a recovery that does not last keeps the open time, one of a full window resets it', async () => {
  const { clock, send, sendAll, snapshot } = setUp()
  await sendAll(times(5, bad))
  await clock.advance(5_000)
  await send(good)
  await clock.advance(29_999)
  await sendAll(times(5, bad))
  assert.equal(snapshot().openForMs, 10_000)
  await clock.advance(10_000)
  await send(good)
  await clock.advance(30_000)
  await sendAll(times(5, bad))
  assert.equal(snapshot().openForMs, 5_000)
})

test('jitter keeps each open time within its share, and uses all of it', () => {
  const factors = Array.from({ length: 500 }, (_, i) => {
    const backoff = new Backoff(settings, createKeyedRandom(1))
    return backoff.next(`server/tool-${i}/0`) / 5_000
  })
  assert.ok(factors.every((factor) => factor >= 0.8 && factor <= 1.2))
  assert.ok(Math.min(...factors) < 0.82 && Math.max(...factors) > 1.18)
})

test('breakers that have reached the longest open time are still out of step', () => {
  const longest = ['a', 'b', 'c', 'd'].map((owner) => {
    const backoff = new Backoff(settings, createKeyedRandom(1))
    return times(50, good).reduce(() => backoff.next(owner), 0)
  })
  assert.equal(new Set(longest).size, 4)
  assert.ok(longest.every((ms) => ms >= 48_000 && ms <= 72_000))
})

test('the same owner draws the same open times from the same seed, a new one for each opening', () => {
  const draw = () => {
    const backoff = new Backoff({ ...settings, maxOpen: 5_000 }, createKeyedRandom(7))
    return [1, 2, 3, 4].map(() => backoff.next('server/tool/0'))
  }
  assert.deepEqual(draw(), draw())
  assert.equal(new Set(draw()).size, 4)
})
