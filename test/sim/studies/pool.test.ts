import assert from 'node:assert/strict'
import { test } from 'node:test'
import { numberIn, rowOf, runAsShown } from './findings.ts'

const findings = await runAsShown('pool')
const stage = (number: number, retries: string) => rowOf(findings, { stage: number, retries })

test('the first three stages do no harm, however retries are bounded', () => {
  for (const number of [1, 2, 3])
    for (const retries of ['bounded', 'unbounded']) {
      const { during, after, causeDuring, causeAfter } = stage(number, retries)
      assert.deepEqual([during, after, causeDuring, causeAfter], [1, 1, 'nobody', 'nobody'])
    }
})

test('after the last stage unbounded retries keep an outage up that is over for bounded ones', () => {
  const bounded = stage(4, 'bounded')
  const unbounded = stage(4, 'unbounded')
  assert.ok(numberIn(bounded, 'recoveryS') < 10)
  assert.equal(unbounded.recoveryS, null)
  assert.ok(numberIn(unbounded, 'after') < numberIn(bounded, 'after') - 0.2)
  assert.ok(numberIn(unbounded, 'tries') > 10 * numberIn(bounded, 'tries'))
})

test('the pool causes the outage of bounded retries, and the own rate limiter that of unbounded ones', () => {
  assert.equal(stage(4, 'bounded').causeDuring, 'pool')
  assert.equal(stage(4, 'unbounded').causeAfter, 'own rate limiter')
})
