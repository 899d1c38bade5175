import assert from 'node:assert/strict'
import { test } from 'node:test'
import { PeakEwma } from '../../../src/policies/route/load.ts'

test('a peak counts at once, lower samples count slowly', () => {
  const average = new PeakEwma(10_000)
  average.add(90, 0)
  average.add(2_000, 100)
  assert.equal(average.last, 2_000)
  average.add(90, 200)
  assert.ok((average.last ?? 0) > 1_900)
  for (let now = 300; now <= 60_000; now += 100) average.add(90, now)
  assert.ok((average.last ?? 0) < 100)
})

test('the average fades without samples', () => {
  const average = new PeakEwma(10_000)
  assert.equal(average.last, undefined)
  assert.equal(average.faded(0), 0)
  average.add(1_000, 0)
  assert.ok(Math.abs(average.faded(10_000) - 1_000 / Math.E) < 1e-9)
  assert.equal(average.last, 1_000)
})

test('a lower bound can only raise it', () => {
  const average = new PeakEwma(10_000)
  average.add(100, 0)
  average.addAtLeast(50, 10_000)
  assert.equal(average.last, 100)
  average.addAtLeast(150, 10_000)
  assert.equal(average.last, 150)
})
