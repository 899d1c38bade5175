import assert from 'node:assert/strict'
import { test } from 'node:test'
import { curves, decades } from '../../bench/growth-curves.ts'
import { powerOf, tableOf, type Point } from '../../bench/growth-report.ts'

const pointsOf = (costs: Readonly<Record<number, number>>): Point[] =>
  Object.entries(costs).map(([at, cpuMicros]) => ({ at: Number(at), figures: { cpuMicros } }))

test('a cost that grows with the count grows by the first power, from any start', () => {
  assert.equal(powerOf(pointsOf({ 1: 5, 101: 105, 1_001: 1_005 }), 'cpuMicros'), 1)
})

test('a cost with four times the gain for twice the count grows by the second power', () => {
  assert.equal(powerOf(pointsOf({ 1: 100, 101: 200, 201: 500 }), 'cpuMicros'), 2)
})

test('a cost that stays within a quarter of its first value has no power', () => {
  assert.equal(powerOf(pointsOf({ 1: 100, 100: 90, 1_000: 120 }), 'cpuMicros'), undefined)
})

test('two points show no power of growth', () => {
  assert.equal(powerOf(pointsOf({ 1: 100, 100: 900 }), 'cpuMicros'), undefined)
})

test('a table has a line for each count, and one for the powers', () => {
  const points = pointsOf({ 1: 5, 101: 105, 1_001: 1_005 })
  assert.deepEqual(tableOf({ name: 'servers', unit: 'servers', points }).split('\n'), [
    '| servers | CPU of a call, µs |',
    '| ---: | ---: |',
    '| 1 | 5 |',
    '| 101 | 105 |',
    '| 1,001 | 1,005 |',
    '| grows by | n^1.00 |',
  ])
})

test('an axis goes from one power of ten to another, and has both ends on it', () => {
  const { marks, share } = decades([3, 250])
  assert.deepEqual(marks, [1, 10, 100, 1_000])
  assert.equal(share(1), 0)
  assert.equal(share(1_000), 1)
})

test('a figure without a value at some count has no curve', () => {
  const points = [
    { at: 1, figures: { cpuMicros: 5, listMs: NaN } },
    { at: 10, figures: { cpuMicros: 6, listMs: 2 } },
  ]
  const picture = curves([{ name: 'tools', unit: 'tools', points }])
  assert.match(picture, /CPU of a call/)
  assert.doesNotMatch(picture, /list again/)
})
