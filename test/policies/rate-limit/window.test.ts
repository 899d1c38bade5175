import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createKeyedRandom } from '../../../src/mesh/keyed-random.ts'
import { SlidingWindow } from '../../../src/policies/rate-limit/quota.ts'

/** Lets a call go that reaches the server at once. */
function pass(window: SlidingWindow, now: number): number {
  const waitMs = window.take(now)
  if (waitMs > 0) return waitMs
  window.sent(now)
  window.left()
  return 0
}

test('no span of that length ever holds more calls than the quota', () => {
  const random = createKeyedRandom(3)
  const window = new SlidingWindow({ calls: 5, per: 100, minTime: 0 })
  const passed: number[] = []
  let now = 0
  for (let i = 0; i < 5_000; i++) {
    now += random(String(i), 'pause') * 20
    if (pass(window, now) === 0) passed.push(now)
  }
  for (const [i, time] of passed.entries()) assert.ok((passed[i + 5] ?? Infinity) - time >= 100)
  assert.ok(passed.length > 0.9 * (now / 100) * 5, 'it lets through what it may')
})

test('the wait is told exactly, also for those who come after others', () => {
  const window = new SlidingWindow({ calls: 2, per: 100, minTime: 0 })
  pass(window, 0)
  pass(window, 30)
  assert.equal(pass(window, 40), 60)
  assert.deepEqual(
    [0, 1, 2, 3, 4].map((ahead) => window.wait(40, ahead)),
    [60, 90, 160, 190, 260],
  )
  assert.equal(window.room(40), 0)
  assert.equal(window.room(100), 1)
  assert.equal(pass(window, 100), 0)
})

test('calls keep their distance, even when the quota would let them go', () => {
  const window = new SlidingWindow({ calls: 10, per: 1_000, minTime: 20 })
  assert.equal(pass(window, 0), 0)
  assert.equal(pass(window, 5), 15)
  assert.equal(window.wait(5, 2), 55)
  assert.equal(pass(window, 20), 0)
})

test('however long calls are under way, no span at the server holds more than the quota', () => {
  const random = createKeyedRandom(4)
  const window = new SlidingWindow({ calls: 5, per: 100, minTime: 0 })
  const arrived: number[] = []
  let underWay: number[] = []
  for (let now = 0; now < 50_000; now++) {
    if (random(String(now), 'comes') < 0.3 && window.take(now) === 0)
      underWay.push(now + Math.floor(random(String(now), 'pause') ** 3 * 300))
    for (const at of underWay.filter((due) => due === now)) {
      // One in ten never reaches it.
      if (random(String(at), 'lost') > 0.1) {
        window.sent(now)
        arrived.push(now)
      }
      window.left()
    }
    underWay = underWay.filter((due) => due !== now)
  }
  for (const [i, time] of arrived.entries()) assert.ok((arrived[i + 5] ?? Infinity) - time >= 100)
  assert.ok(arrived.length > 1_000, `${arrived.length} calls`)
  assert.equal(window.underWay, underWay.length)
})
