import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createKeyedRandom } from '../../../src/mesh/keyed-random.ts'
import { SlidingWindow } from '../../../src/policies/rate-limit/quota.ts'

test('no span of that length ever holds more calls than the quota', () => {
  const random = createKeyedRandom(3)
  const window = new SlidingWindow({ calls: 5, per: 100, minTime: 0 })
  const passed: number[] = []
  let now = 0
  for (let i = 0; i < 5_000; i++) {
    now += random(String(i), 'pause') * 20
    if (window.take(now) === 0) passed.push(now)
  }
  for (const [i, time] of passed.entries()) assert.ok((passed[i + 5] ?? Infinity) - time >= 100)
  assert.ok(passed.length > 0.9 * (now / 100) * 5, 'it lets through what it may')
})

test('the wait is told exactly, also for those who come after others', () => {
  const window = new SlidingWindow({ calls: 2, per: 100, minTime: 0 })
  window.take(0)
  window.take(30)
  assert.equal(window.take(40), 60)
  assert.deepEqual(
    [0, 1, 2, 3, 4].map((ahead) => window.wait(40, ahead)),
    [60, 90, 160, 190, 260],
  )
  assert.equal(window.left(40), 0)
  assert.equal(window.left(100), 1)
  assert.equal(window.take(100), 0)
})

test('calls keep their distance, even when the quota would let them go', () => {
  const window = new SlidingWindow({ calls: 10, per: 1_000, minTime: 20 })
  assert.equal(window.take(0), 0)
  assert.equal(window.take(5), 15)
  assert.equal(window.wait(5, 2), 55)
  assert.equal(window.take(20), 0)
})
