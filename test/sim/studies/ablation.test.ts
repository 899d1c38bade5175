import assert from 'node:assert/strict'
import { test } from 'node:test'
import { inForce } from '../../../src/sim/policy-choices.ts'
import { numberIn, rowOf, runAsShown } from './findings.ts'

const findings = await runAsShown('ablation')
const value = (mix: string, policies: string, key: string) =>
  numberIn(rowOf(findings, { policies }, mix), key)

test('each policy that is in force by default is left out once under each mix, and a breaker added', () => {
  for (const { name, rows } of findings.tables)
    assert.deepEqual(
      rows.map(({ policies }) => policies),
      [
        'default',
        ...inForce.map((policy) => `without ${policy}`),
        'with a breaker',
        'with a breaker, open for 1s',
        'none',
      ],
      name,
    )
})

test('without retries more tasks fail under errors', () => {
  assert.ok(value('errors', 'without retry', 'radiusMore') > 0.1)
  assert.ok(value('errors', 'without retry', 'attemptsMore') < 0)
  assert.equal(value('errors', 'default', 'radiusMore'), 0)
})

test('without a verdict wrong answers count as good calls, and mislead as many tasks', () => {
  assert.equal(value('wrong answers', 'without verdict', 'tcsr'), 1)
  assert.ok(value('wrong answers', 'default', 'tcsr') < 0.99)
  assert.ok(value('wrong answers', 'without verdict', 'radius') > 0.1)
})

test('a lost server costs tasks without retries, and more with a breaker', () => {
  assert.equal(value('server down', 'default', 'radius'), 0)
  assert.ok(value('server down', 'without retry', 'radiusMore') > 0.05)
  assert.ok(value('server down', 'without gate', 'attemptsMore') > 0)
  for (const policies of ['with a breaker', 'with a breaker, open for 1s'])
    assert.ok(value('server down', policies, 'radiusMore') > 0.1, policies)
})

test('without overdue calls of the tail are late', () => {
  assert.ok(value('latency tail', 'without overdue', 'p95More') > 200)
})

test('a sentence says what leaving a policy out does', () => {
  assert.match(findings.seen[0]!, /^Under errors .*\+[\d.]+ points without retry/)
})

test('a better TCSR without a verdict is said to be errors that nobody notices', () => {
  const told = findings.seen.filter((sentence) => sentence.includes('no longer noticed'))
  assert.equal(told.length, 1)
  assert.match(told[0]!, /^Under wrong answers .* TCSR is higher by \+[\d.]+ points without verdict/)
})
