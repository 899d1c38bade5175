import assert from 'node:assert/strict'
import { test } from 'node:test'
import { judgeControl, needless } from './control-mcp.ts'
import type { Check, Results } from './suite.ts'

const check = (id: string, status: Check['status']): Check => ({ id, status })
const results = (scenario: string, ...checks: readonly Check[]): Results => new Map([[scenario, checks]])

test('a failed check of a scenario that applies has failed', () => {
  for (const status of ['FAILURE', 'WARNING'] as const) {
    const { passed, failures } = judgeControl(results('ping', check('ping', status), check('a', 'SUCCESS')))
    assert.equal(passed, 1)
    assert.equal(failures.length, 1)
  }
})

test('a failed check of a scenario that does not apply is excused with a reason, and its messages still count', () => {
  const found = results('tools-call-image', check('image', 'FAILURE'), check('wire-schema-valid', 'FAILURE'))
  const { rows, failures } = judgeControl(found)
  assert.equal(failures.length, 1)
  assert.match(failures[0]!, /wire-schema-valid/)
  assert.match(rows[0]?.reasons.join() ?? '', /fixture tool/)
})

test('a listed check excuses no other check of its scenario', () => {
  const listed = 'sep-2549-resources-list-caching-hints'
  const { failures } = judgeControl(results('caching', check(listed, 'FAILURE'), check('a', 'FAILURE')))
  assert.deepEqual(failures, ['caching, a: FAILURE: no message'])
})

test('an entry of the list that excuses nothing is reported', () => {
  const all = needless([judgeControl(results('tools-call-image', check('image', 'FAILURE')))])
  assert.ok(!all.some((line) => line.startsWith('tools-call-image:')))
  assert.ok(all.some((line) => line.startsWith('tools-call-audio:')))
  assert.ok(all.some((line) => line.startsWith('caching, sep-2549-resources-list-caching-hints:')))
})
