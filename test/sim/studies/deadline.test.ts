import assert from 'node:assert/strict'
import { test } from 'node:test'
import { deadline } from '../../../src/sim/studies/deadline.ts'
import { numberIn, rowOf, runTwice } from './findings.ts'

const findings = await runTwice(deadline)
const value = (total: number, attempt: number | null, forwarded: string, key: string) =>
  numberIn(rowOf(findings, { total, attempt, forwarded }), key)

test('longer deadlines bring more calls home', () => {
  const shares = [250, 500, 1_000, 2_000, 5_000].map((total) => value(total, null, 'no', 'inTime'))
  for (const [at, share] of shares.slice(1).entries()) assert.ok(share > shares[at]!, String(shares))
})

test('a server that knows its deadline does not work for agents that have left', () => {
  assert.ok(value(250, null, 'no', 'wasted') > 0.3)
  assert.ok(value(250, null, 'yes', 'wasted') < 0.01)
})

test('an attempt timeout before a busy server causes collapse, unless the deadline is forwarded', () => {
  assert.ok(value(1_000, 500, 'no', 'inTime') < 0.5)
  assert.ok(value(1_000, 500, 'yes', 'inTime') > 0.8)
  assert.ok(value(1_000, null, 'no', 'inTime') > 0.9)
  assert.ok(value(1_000, 500, 'no', 'attempts') > 1.1)
})
