import assert from 'node:assert/strict'
import { test } from 'node:test'
import { parseClaim } from '../../src/claims/claim.ts'
import { judge, valueInWords } from '../../src/claims/judge.ts'
import { type Subject, subjects } from '../../src/claims/subjects.ts'

const read = (text: string) => parseClaim(text, Object.keys(subjects) as Subject[])

test('claims are read with their units', () => {
  for (const [text, subject, operator, value] of [
    ['p95 < 500ms', 'p95', '<', 500],
    ['error_ratio<1%', 'error_ratio', '<', 0.01],
    ['uptime >= 30s', 'uptime', '>=', 30_000],
    ['status = up', 'status', '=', 1],
    ['attempts_per_call <= 1.5', 'attempts_per_call', '<=', 1.5],
    ['tcsr=.999', 'tcsr', '=', 0.999],
  ] as const)
    assert.deepEqual(read(text), { text, subject, operator, value })
})

test('a text that is no claim is refused with the accepted subjects, or with what was meant', () => {
  for (const [text, problem] of [
    ['p96 < 500ms', /^there is no "p96"; did you mean "p9[059]"\?$/],
    ['P95 < 1s', /^there is no "P95"; did you mean "p95"\?$/],
    ['error-ratio < 1%', /^there is no "error-ratio"; did you mean "error_ratio"\?$/],
    ['p95 < 3 s', /^"3 s" is not a value of p95/],
    ['p95 == 3s', /^"= 3s" is not a value of p95/],
    ['p95 < fast', /^"fast" is not a value of p95: expected a duration such as 500ms or 2s$/],
    ['error_ratio < 150%', /^"150%" is not a value of error_ratio: expected a share such as 1% or 0\.01$/],
    ['p95 < 5%', /^"5%" is not a value of p95: expected a duration such as 500ms or 2s$/],
    ['all is well', /^expected a claim: p50, p90, .*, then <, <=, >, >= or =, then a value$/],
  ] as const)
    assert.match((read(text) as { problem: string }).problem, problem)
  const problem = 'there is no "uptime"; there are p95, tcsr'
  assert.deepEqual(parseClaim('uptime > 1s', ['p95', 'tcsr']), { problem })
})

test('a number that is not known exactly is judged where all of its range says the same', () => {
  const verdicts = (operator: '<' | '<=' | '>' | '>=' | '=', least: number, most: number) =>
    [1, 2, 3].map((value) => judge([{ operator, value }], { least, most }))
  assert.deepEqual(verdicts('<', 1, 2), [false, undefined, true])
  assert.deepEqual(verdicts('<=', 1, 2), [undefined, true, true])
  assert.deepEqual(verdicts('>', 2, 3), [true, undefined, false])
  assert.deepEqual(verdicts('>=', 2, 3), [true, true, undefined])
  assert.deepEqual(verdicts('=', 2, 3), [false, undefined, undefined])
  assert.equal(judge([{ operator: '<', value: 1 }], undefined), undefined)
})

test('a share below the whole never reads as the whole', () => {
  const said = [0, 0.05, 0.9994, 0.99999, 0.9999999, 1].map((share) => valueInWords('share', share))
  assert.deepEqual(said, ['0%', '5%', '99.9%', '99.999%', '99.99999%', '100%'])
})
