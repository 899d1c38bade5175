import assert from 'node:assert/strict'
import { test } from 'node:test'
import { hol } from '../../../src/sim/studies/hol.ts'
import { numberIn, rowOf } from './findings.ts'

const findings = await hol.run({ seed: 1, seeds: 1 })
const value = (policies: string, tools: string, key: string) =>
  numberIn(rowOf(findings, { policies, tools }), key)
const FAST = 'fast tools beside the slow one'

test('fast tools wait behind a slow one, and the bulkhead keeps them from it', () => {
  for (const policies of ['none', 'without bulkhead'])
    assert.ok(value(policies, FAST, 'p95') > 1_000, policies)
  for (const policies of ['bulkhead only', 'default']) {
    assert.ok(value(policies, FAST, 'p95') < 50, policies)
    assert.equal(value(policies, FAST, 'success'), 1, policies)
  }
})

test('the price is paid by calls of the slow tool', () => {
  assert.equal(value('none', 'the slow tool', 'success'), 1)
  assert.ok(value('bulkhead only', 'the slow tool', 'success') < 0.8)
})

test('another server is as fast as ever, and called less often by agents that wait for the slow tool', () => {
  for (const policies of ['none', 'bulkhead only'])
    assert.ok(value(policies, 'another server', 'p95') < 50, policies)
  const [bare, limited] = ['none', 'bulkhead only'].map((policies) =>
    value(policies, 'another server', 'perSecond'),
  ) as [number, number]
  assert.ok(limited < bare, `${bare}, ${limited}`)
})
