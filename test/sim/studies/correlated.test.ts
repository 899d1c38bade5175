import assert from 'node:assert/strict'
import { test } from 'node:test'
import { numberIn, rowOf, runAsShown } from './findings.ts'

const findings = await runAsShown('correlated')
const value = (errors: string, policies: string, key: string) =>
  numberIn(rowOf(findings, { errors, policies }), key)

test('independent errors fail as many tasks as they should, and retries mend nearly all of them', () => {
  const radius = value('independent', 'none', 'radius')
  assert.ok(Math.abs(radius - value('independent', 'none', 'predicted')) < 0.05, `${radius}`)
  assert.ok(Math.abs(value('independent', 'none', 'tcsr') - 0.98) < 0.01)
  assert.ok(value('independent', 'retry only', 'radius') < 0.01)
  assert.ok(value('independent', 'retry only', 'mended') > 0.95)
})

test('retries outlast bursts, and add next to nothing to the load', () => {
  for (const errors of ['independent', 'bursts of 4', 'bursts of 64', 'server episodes'])
    for (const policies of ['retry only', 'default']) {
      assert.ok(value(errors, policies, 'mended') > 0.95, errors)
      assert.ok(value(errors, policies, 'radius') < 0.01, errors)
      assert.ok(value(errors, policies, 'attempts') < 1.05, errors)
    }
  assert.ok(
    findings.seen.some((sentence) =>
      /^Retries mend at least 50 % of these calls in every form/.test(sentence),
    ),
  )
})

test('where no seed varies there is no standard error, which is not one of 0', () => {
  const cell = rowOf(findings, { errors: 'independent', policies: 'retry only' })
  assert.deepEqual([cell.radius, cell.se, cell.sd], [0, null, 0])
  const said = findings.seen.join(' ')
  assert.match(
    said,
    /independent; blast radius [\d.]+ % without policies, 0 % in each of 10 runs with retries/,
  )
  assert.doesNotMatch(said, /± 0 %/)
})

test('the errors of a form are the calls that fail without policies', () => {
  for (const errors of ['independent', 'bursts of 64'])
    for (const policies of ['none', 'default'])
      assert.ok(
        Math.abs(value(errors, policies, 'failing') + value(errors, 'none', 'tcsr') - 1) < 1e-5,
        errors,
      )
})

test('a breaker without probes locks out where nothing else does', () => {
  for (const errors of ['bursts of 64', 'server episodes']) {
    assert.ok(value(errors, 'breaker without probes', 'lockIn') > 0, errors)
    assert.equal(value(errors, 'none', 'lockIn'), 0, errors)
  }
  assert.equal(value('independent', 'breaker without probes', 'lockIn'), 0)
  assert.ok(findings.seen.some((sentence) => sentence.startsWith('A breaker without probes stays open: ')))
})
