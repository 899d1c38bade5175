import assert from 'node:assert/strict'
import { test } from 'node:test'
import { estimateOf, LatencyEstimate } from '../../../src/policies/state/estimate.ts'
import { testPolicyContext, testScope } from '../../support/policy-context.ts'

/** Returns an estimate after `count` answers of `ms`, ten a second, and the time at the end. */
function after(count: number, ms: number) {
  const estimate = new LatencyEstimate()
  for (let i = 0; i < count; i++) estimate.record(ms, i * 100)
  return { estimate, now: count * 100 }
}

const chance = (estimate: LatencyEstimate, ms: number, now: number) => estimate.chanceWithin(ms, now) ?? NaN

test('an estimate begins after about ten calls, and ends when these calls are forgotten', () => {
  const { estimate } = after(5, 90)
  assert.equal(estimate.chanceWithin(100, 500), undefined)
  assert.equal(estimate.quantile(0.5, 500), undefined)
  const more = after(10, 90)
  assert.equal(more.estimate.chanceWithin(200, more.now), 1)
  assert.ok(Math.abs((more.estimate.quantile(0.5, more.now) ?? 0) / 90 - 1) < 0.15)
  assert.equal(more.estimate.chanceWithin(200, 60_000), undefined)
})

test('a server that turns from 90 ms to 2 s is noticed within five calls', () => {
  const { estimate, now } = after(600, 90)
  for (let i = 0; i < 5; i++) estimate.record(2_000, now + i * 100)
  assert.ok(chance(estimate, 1_000, now + 500) < 0.5)
  assert.ok(chance(estimate, 3_000, now + 500) > 0.99)
})

test('calls that were given up are noticed as fast', () => {
  const { estimate, now } = after(600, 90)
  for (let i = 0; i < 5; i++) estimate.recordCensored(1_000, now + i * 100)
  assert.ok(chance(estimate, 1_000, now + 500) < 0.5)
})

test('an outlier or two do not make a tool look slow', () => {
  const { estimate, now } = after(600, 90)
  for (let i = 0; i < 2; i++) estimate.record(20_000, now)
  assert.ok(chance(estimate, 1_000, now) > 0.7)
})

test('a slow spell at the end of which nobody called is not held against a tool for long', () => {
  const { estimate, now } = after(600, 90)
  for (let i = 0; i < 8; i++) estimate.record(2_000, now)
  assert.ok(chance(estimate, 1_000, now) < 0.5)
  assert.ok(chance(estimate, 1_000, now + 10_001) > 0.9)
})

test('calls that had little time tell nothing about those that have more', () => {
  const estimate = new LatencyEstimate()
  for (let i = 0; i < 100; i++) estimate.recordCensored(50, 0)
  assert.equal(estimate.chanceWithin(50, 0), 0)
  assert.equal(estimate.chanceWithin(5_000, 0), undefined)
})

test('a tool and a replica share one estimate among all users', () => {
  const context = testPolicyContext()
  const scope = testScope()
  assert.equal(estimateOf(context, scope, 0), estimateOf(context, testScope(), 0))
  assert.notEqual(estimateOf(context, scope, 0), estimateOf(context, scope, 1))
  assert.notEqual(estimateOf(context, scope, 0), estimateOf(context, testScope({ tool: 'other' }), 0))
})

test('a snapshot says how much is known and the quantiles', () => {
  const { estimate } = after(100, 90)
  const { samples, p50Ms = 0, p95Ms = 0, p99Ms = 0 } = estimate.snapshot(9_900)
  assert.ok(samples > 80 && samples < 100)
  assert.ok(p50Ms <= p95Ms && p95Ms <= p99Ms && p50Ms > 78 && p99Ms < 104)
})
