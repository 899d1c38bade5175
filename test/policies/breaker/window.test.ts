import assert from 'node:assert/strict'
import { test } from 'node:test'
import { RingWindow } from '../../../src/policies/breaker/health.ts'

const held = (window: RingWindow, now: number) => {
  const { good, bad } = window.totals(now)
  return [good, bad]
}

test('a window counts exactly what came within its length', () => {
  const window = new RingWindow(1_000)
  window.add(false, 5)
  window.add(true, 99)
  window.add(true, 100)
  assert.deepEqual(held(window, 999), [1, 2])
  assert.deepEqual(held(window, 1_000), [0, 1])
  assert.deepEqual(held(window, 1_100), [0, 0])
})

test('a pause without looks empties the window, even many lengths of the window', () => {
  const window = new RingWindow(1_000)
  for (let now = 0; now < 1_000; now += 100) window.add(true, now)
  assert.deepEqual(held(window, 1_499), [0, 5])
  assert.deepEqual(held(window, 123_456_789), [0, 0])
  window.add(false, 123_456_789)
  assert.deepEqual(held(window, 123_456_790), [1, 0])
})

test('a reset forgets everything', () => {
  const window = new RingWindow(1_000)
  window.add(true, 0)
  window.add(false, 500)
  window.reset()
  assert.deepEqual(held(window, 500), [0, 0])
  assert.deepEqual(held(window, 1_200), [0, 0])
})

test('sums agree with counting by hand, whatever the order of samples and pauses', () => {
  const window = new RingWindow(1_000)
  const samples: { bad: boolean; at: number }[] = []
  let now = 0
  for (let i = 0; i < 2_000; i++) {
    now += (i * 7_919) % 331
    window.add(i % 3 === 0, now)
    samples.push({ bad: i % 3 === 0, at: now })
    const oldest = (Math.floor(now / 100) - 9) * 100
    const inside = samples.filter(({ at }) => at >= oldest)
    const bad = inside.filter((sample) => sample.bad).length
    assert.deepEqual(held(window, now), [inside.length - bad, bad])
  }
})
