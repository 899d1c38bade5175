import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Gradient } from '../../../src/policies/adaptive-concurrency.ts'

const settings = { initial: 20, min: 4, max: 200, smoothing: 0.2, tolerance: 1.5, window: 600 }

/** Takes `count` samples of calls that use the whole limit. Returns the new limit. */
function samples(gradient: Gradient, count: number, latencyMs: number): number {
  for (let i = 0; i < count; i++) gradient.sample(latencyMs, gradient.limit)
  return gradient.limit
}

test('under steady latency the limit grows up to its maximum', () => {
  const gradient = new Gradient(settings)
  assert.equal(gradient.limit, 20)
  assert.ok(samples(gradient, 1, 50) <= 21)
  assert.ok(samples(gradient, 20, 50) > 30)
  assert.equal(samples(gradient, 500, 50), 200)
})

test('each step equals a step of Gradient2', () => {
  const gradient = new Gradient({ ...settings, initial: 100, tolerance: 1 })
  samples(gradient, 9, 100)
  const before = gradient.limit
  const rising = new Gradient({ ...settings, initial: 100, tolerance: 1, max: 100 })
  samples(rising, 9, 100)
  rising.sample(200, 100)
  // Long-term mean 110, so the gradient is 0.55: 0.8 × 100 + 0.2 × (55 + 10) = 93.
  assert.equal(rising.limit, 93)
  assert.ok(before > 100)
})

test('latency within the tolerance does not shrink it, latency above does', () => {
  const gradient = new Gradient(settings)
  samples(gradient, 500, 50)
  assert.equal(samples(gradient, 20, 70), 200)
  assert.ok(samples(gradient, 20, 500) < 120)
})

test('the limit grows back when latency comes down again', () => {
  const gradient = new Gradient(settings)
  samples(gradient, 500, 50)
  const shrunk = samples(gradient, 30, 1_000)
  assert.ok(shrunk < 100)
  assert.equal(samples(gradient, 200, 50), 200)
})

test('a lasting slowness becomes the normal state: the limit does not freeze at its minimum', () => {
  const gradient = new Gradient({ ...settings, tolerance: 1, min: 4 })
  samples(gradient, 500, 10)
  for (let i = 0; i < 200; i++) gradient.drop(i, i)
  assert.equal(gradient.limit, 4)
  assert.ok(samples(gradient, 2_000, 1_000) > 10)
})

test('an agent that uses half of the limit changes nothing', () => {
  const gradient = new Gradient(settings)
  for (let i = 0; i < 100; i++) gradient.sample(50, 10)
  for (let i = 0; i < 100; i++) gradient.sample(5_000, 10)
  assert.equal(gradient.limit, 20)
  for (let i = 0; i < 2; i++) gradient.sample(50, 11)
  assert.equal(gradient.limit, 21)
})

test('a drop takes a tenth, once for all calls that were under way together', () => {
  const gradient = new Gradient({ ...settings, initial: 100 })
  for (let i = 0; i < 10; i++) gradient.drop(i, 50)
  assert.equal(gradient.limit, 90)
  gradient.drop(50, 60)
  assert.equal(gradient.limit, 81)
})

test('the limit never leaves its bounds, however latency jumps', () => {
  const gradient = new Gradient(settings)
  for (let i = 0; i < 2_000; i++) {
    gradient.sample(i % 7 === 0 ? 10_000 : 0, gradient.limit)
    if (i % 5 === 0) gradient.drop(i, i)
    assert.ok(gradient.limit >= 4 && gradient.limit <= 200)
  }
})
