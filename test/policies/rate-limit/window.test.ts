import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createKeyedRandom } from '../../../src/mesh/keyed-random.ts'
import { SlidingWindow, type Ticket } from '../../../src/policies/rate-limit/quota.ts'

/** Passes a call that reaches the server at once. */
function pass(window: SlidingWindow, now: number): number {
  const turn = window.take(now)
  turn?.sent(now)
  return turn === undefined ? window.wait(now, 0) : 0
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
  assert.ok(passed.length > 0.9 * (now / 100) * 5, 'the window passes every allowed call')
})

test('the wait is told exactly, even to callers behind others', () => {
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
  const arrived: number[] = []
  let window = new SlidingWindow({ calls: 5, per: 100, minTime: 0 })
  let underWay: { readonly turn: Ticket; readonly at: number }[] = []
  for (let now = 0; now < 50_000; now++) {
    // A config with the same quota under another name takes over midway.
    if (now % 730 === 0) window = new SlidingWindow({ calls: 5, per: 100, minTime: 0 }, [window])
    const turn = random(String(now), 'comes') < 0.3 ? window.take(now) : undefined
    if (turn !== undefined)
      underWay.push({ turn, at: now + Math.floor(random(String(now), 'pause') ** 3 * 300) })
    for (const { turn } of underWay.filter(({ at }) => at === now)) {
      // A tenth of the calls is never sent.
      if (random(String(now), 'lost') < 0.1) turn.end()
      else {
        turn.sent(now)
        arrived.push(now)
      }
    }
    underWay = underWay.filter(({ at }) => at !== now)
    assert.equal(window.underWay, underWay.length)
  }
  for (const [i, time] of arrived.entries())
    assert.ok((arrived[i + 5] ?? Infinity) - time >= 100, String(time))
  assert.ok(arrived.length > 1_000, `${arrived.length} calls`)
})

test('a call that is under way for long keeps others apart by no more than their distance', () => {
  const window = new SlidingWindow({ calls: 10, per: 1_000, minTime: 20 })
  assert.ok(window.take(0))
  assert.equal(window.wait(5, 0), 15)
  assert.ok(window.take(20))
  assert.equal(window.underWay, 2)
})
