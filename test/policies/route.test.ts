import assert from 'node:assert/strict'
import { test } from 'node:test'
import { route } from '../../src/policies/route.ts'

test('routing keeps callers at home, only watches deadlines, and ejects after five failures, by default', () => {
  assert.deepEqual(route.schema.parse({}), {
    affinity: 'auto',
    feasibility: 'observe',
    threshold: 0.5,
    explore: 0.03,
    ejection: { consecutive: 5, base: 30_000, maxShare: 0.1 },
  })
})

test('ejection can be switched off, or set in part', () => {
  assert.equal(route.schema.parse({ ejection: false }).ejection, false)
  assert.deepEqual(route.schema.parse({ ejection: { base: '5s' } }).ejection, {
    consecutive: 5,
    base: 5_000,
    maxShare: 0.1,
  })
})

test('contradictory settings are refused', () => {
  for (const wrong of [
    { threshold: 1.1 },
    { explore: -0.1 },
    { ejection: { consecutive: 0 } },
    { ejection: true },
    { affinity: 'sticky' },
    { other: 1 },
  ])
    assert.equal(route.schema.safeParse(wrong).success, false, JSON.stringify(wrong))
})
