import assert from 'node:assert/strict'
import { test } from 'node:test'
import { anomaliesIn, learn, type Learning } from '../../../src/experiments/guarded/baseline.ts'
import type { Figures } from '../../../src/experiments/guarded/meter.ts'
import { figuresOf } from './figures.ts'

const seconds = (...p95: number[]): Figures[] => p95.map((value) => figuresOf({ p95: value }))

function above(learning: Learning, of: readonly Figures[]): number {
  const learned = learn(learning, of)
  assert.ok('rule' in learned, 'problem' in learned ? learned.problem : '')
  return learned.rule.above
}

test('thresholds are learned in four ways', () => {
  const of = seconds(10, 20, 30, 40, 50)
  const p95 = { metric: 'p95', for: 0 } as const
  assert.equal(above({ ...p95, method: 'static', above: 99 }, of), 99)
  assert.equal(above({ ...p95, method: 'sigma', k: 2 }, of), 30 + 2 * Math.sqrt(250))
  assert.equal(above({ ...p95, method: 'percentile', percentile: 50, factor: 2 }, of), 60)
  assert.equal(above({ ...p95, method: 'iqr', k: 1.5 }, of), 40 + 1.5 * 20)
})

test('a learned threshold is a rule for the treatment, with its origin', () => {
  const learned = learn({ metric: 'p95', for: 2_000, method: 'sigma', k: 3 }, seconds(10, 10, 10, 10, 10))
  assert.deepEqual(learned, {
    rule: { metric: 'p95', above: 10, of: 'treatment', for: 2_000, learned: 'mean + 3σ of the baseline' },
  })
})

test('too few seconds teach nothing', () => {
  const learned = learn({ metric: 'p95', for: 0, method: 'iqr', k: 3 }, seconds(10, 20))
  assert.ok('problem' in learned)
  assert.match(learned.problem, /^p95 was seen in 2 seconds of the baseline/)
})

test('a learned share can always be broken', () => {
  const of = Array.from({ length: 6 }, () => figuresOf({ calls: 10, failed: 9 }))
  assert.equal(
    above({ metric: 'error_ratio', for: 0, method: 'percentile', percentile: 95, factor: 4 }, of),
    0.999,
  )
})

test('a steady baseline has no anomaly, however small its latencies are', () => {
  assert.deepEqual(anomaliesIn(seconds(1, 2, 1, 3, 1, 2, 1, 2, 1, 2, 1, 2)), [])
})

test('one slow second, and a baseline that gets faster, are no anomalies', () => {
  const means = (...all: number[]) => all.map((mean) => figuresOf({ mean, p50: mean }))
  assert.deepEqual(anomaliesIn(means(10, 11, 900, 10, 11, 10)), [])
  assert.deepEqual(anomaliesIn(means(90, 95, 100, 90, 95, 10, 10, 11, 10, 11)), [])
  assert.deepEqual(anomaliesIn(means(900, 800, 700, 10, 10, 11, 10, 11, 10, 10, 11, 10)), [])
})

test('spikes and drift are anomalies', () => {
  const spiky = [10, 11, 10, 12, 11, 10, 900, 11, 10, 800].map((mean) => figuresOf({ mean, p50: 10 }))
  assert.match(anomaliesIn(spiky).join(), /^mean was above \d+ms in 2 of 10 seconds/)
  const drifting = [10, 10, 11, 10, 11, 90, 95, 100, 90, 95].map((p50) => figuresOf({ p50, mean: 50 }))
  assert.match(
    anomaliesIn(drifting).join(),
    /^the median went from 10ms in its first half to 95ms in its second$/,
  )
})
