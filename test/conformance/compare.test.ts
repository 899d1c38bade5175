import assert from 'node:assert/strict'
import { test } from 'node:test'
import { compare } from './compare.ts'
import type { Check, Results } from './suite.ts'

const check = (id: string, status: Check['status']): Check => ({ id, status })
const results = (...checks: readonly Check[]): Results => new Map([['ping', checks]])
const scored = new Set(['ping'])

test('a check that passes both ways is counted once', () => {
  const { rows, passed, failures } = compare(
    results(check('a', 'SUCCESS'), check('note', 'INFO')),
    results(check('a', 'SUCCESS')),
    scored,
  )
  assert.deepEqual(rows, [{ scenario: 'ping', scored: true, total: 1, direct: 1, through: 1 }])
  assert.equal(passed, 1)
  assert.deepEqual(failures, [])
})

test('a check that passes directly and not through the gateway has failed', () => {
  for (const status of ['FAILURE', 'WARNING'] as const) {
    const { passed, failures } = compare(results(check('a', 'SUCCESS')), results(check('a', status)), scored)
    assert.equal(passed, 0)
    assert.equal(failures.length, 1)
  }
})

test('a check that the gateway makes disappear has failed', () => {
  const { failures } = compare(results(check('a', 'SUCCESS')), new Map(), scored)
  assert.deepEqual(failures, ['ping, a: is missing through the gateway'])
})

test('a failure that appears only through the gateway counts', () => {
  const { failures } = compare(results(), results(check('scenario-timeout', 'FAILURE')), scored)
  assert.equal(failures.length, 1)
})

test('a check that fails without the gateway counts only when its scenario is scored', () => {
  const failing = results(check('a', 'FAILURE'))
  assert.equal(compare(failing, failing, scored).failures.length, 1)
  assert.equal(compare(failing, failing, new Set()).failures.length, 0)
})

test('one bad finding outweighs good ones of the same check', () => {
  const mixed = results(check('a', 'SUCCESS'), check('a', 'FAILURE'), check('a', 'SUCCESS'))
  assert.equal(compare(results(check('a', 'SUCCESS')), mixed, scored).failures.length, 1)
})
