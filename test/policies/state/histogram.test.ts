import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createKeyedRandom } from '../../../src/mesh/keyed-random.ts'
import { DecayingHistogram, GAMMA } from '../../../src/policies/state/estimate.ts'

/** Realistic server latencies: log-normal around 100 ms, seeded. */
function times(count: number): number[] {
  const random = createKeyedRandom(7)
  return Array.from({ length: count }, (_, i) => {
    const normal =
      Math.sqrt(-2 * Math.log(1 - random(`${i}`, 'radius'))) * Math.cos(2 * Math.PI * random(`${i}`, 'angle'))
    return 100 * Math.exp(normal)
  })
}

test('quantiles are at most one bin off the exact ones', () => {
  const histogram = new DecayingHistogram()
  const sample = times(5_000)
  for (const ms of sample) histogram.add(ms, 0)
  const sorted = sample.toSorted((a, b) => a - b)
  for (const q of [0.01, 0.1, 0.5, 0.9, 0.95, 0.99]) {
    const exact = sorted[Math.ceil(q * sorted.length) - 1] as number
    const ratio = histogram.quantile(q) / exact
    assert.ok(ratio < GAMMA && ratio > 1 / GAMMA, `q ${q}: ${histogram.quantile(q)} instead of ${exact}`)
  }
})

test('the share within a duration is that of the sample', () => {
  const histogram = new DecayingHistogram()
  const sample = times(5_000)
  for (const ms of sample) histogram.add(ms, 0)
  for (const ms of [20, 50, 100, 200, 1_000]) {
    const exact = sample.filter((one) => one <= ms).length / sample.length
    assert.ok(Math.abs(histogram.shareWithin(ms) - exact) < 0.01, `${ms} ms`)
  }
})

test('a sample outside all bins counts in the outermost bins', () => {
  const histogram = new DecayingHistogram()
  histogram.add(0, 0)
  histogram.add(10_000_000, 0)
  assert.equal(histogram.shareWithin(1), 0.5)
  assert.equal(histogram.shareWithin(250_000), 0.5)
})

test('a sample counts half after half a minute', () => {
  const histogram = new DecayingHistogram()
  for (let i = 0; i < 20; i++) histogram.add(100, 0)
  for (let i = 0; i < 10; i++) histogram.add(1_000, 30_000)
  assert.ok(Math.abs(histogram.samples(30_000) - 20) < 1e-9)
  assert.ok(Math.abs(histogram.shareWithin(500) - 0.5) < 1e-9)
})

test('a histogram keeps its proportions over hours and days', () => {
  const histogram = new DecayingHistogram()
  const minute = 60_000
  for (let now = 0; now < 300 * minute; now += minute) histogram.add(100, now)
  assert.ok(Math.abs(histogram.samples(299 * minute) - 4 / 3) < 1e-6)
  assert.equal(histogram.shareWithin(200), 1)
  for (let i = 0; i < 10; i++) histogram.add(1_000, 100_000 * minute)
  assert.ok(Math.abs(histogram.samples(100_000 * minute) - 10) < 1e-9)
  assert.equal(histogram.shareWithin(200), 0)
})

test('calls that were given up count as if they ended as those that took longer', () => {
  const histogram = new DecayingHistogram()
  for (let i = 0; i < 50; i++) histogram.add(100, 0)
  for (let i = 0; i < 30; i++) histogram.addCensored(300, 0)
  for (let i = 0; i < 20; i++) histogram.add(1_000, 0)
  assert.ok(Math.abs(histogram.shareWithin(200) - 0.5) < 1e-9)
  assert.ok(Math.abs(histogram.shareWithin(2_000) - 1) < 1e-9)
})

test('when all long calls were given up, nobody knows how long they take', () => {
  const histogram = new DecayingHistogram()
  for (let i = 0; i < 50; i++) histogram.add(100, 0)
  for (let i = 0; i < 50; i++) histogram.addCensored(1_000, 0)
  assert.ok(Math.abs(histogram.shareWithin(60_000) - 0.5) < 1e-9)
  assert.ok(histogram.quantile(0.95) >= 1_000)
  assert.ok(Math.abs(histogram.samplesAbout(900, 0) - 100) < 1e-9)
  assert.ok(Math.abs(histogram.samplesAbout(60_000, 0) - 50) < 1e-9)
})

test('nothing is known before the first sample', () => {
  const histogram = new DecayingHistogram()
  assert.equal(histogram.shareWithin(1_000), 0)
  assert.equal(histogram.quantile(0.5), 0)
  assert.equal(histogram.samples(0), 0)
})
