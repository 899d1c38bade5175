import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  allHold,
  type Claim,
  failuresIn,
  judge,
  parseClaim,
  valueInWords,
} from '../../../src/experiments/guarded/claims.ts'
import { figuresOf } from './figures.ts'

function claim(text: string): Claim {
  const read = parseClaim(text)
  assert.ok(!('problem' in read), 'problem' in read ? read.problem : '')
  return read
}

const up = [{ name: 'a', isUp: true, uptimeMs: 40_000, probeFailures: 0 }]

test('claims are read with their units', () => {
  const read = [
    'p95 < 500ms',
    'error_ratio<1%',
    'uptime >= 30s',
    'status = up',
    'attempts_per_call <= 1.5',
  ].map(claim)
  assert.deepEqual(
    read.map(({ subject, operator, value }) => [subject, operator, value]),
    [
      ['p95', '<', 500],
      ['error_ratio', '<', 0.01],
      ['uptime', '>=', 30_000],
      ['status', '=', 1],
      ['attempts_per_call', '<=', 1.5],
    ],
  )
})

test('a share below the whole never reads as the whole', () => {
  const said = [0, 0.05, 0.9994, 0.99999, 0.9999999, 1].map((share) => valueInWords('share', share))
  assert.deepEqual(said, ['0%', '5%', '99.9%', '99.999%', '99.99999%', '100%'])
})

test('what is no claim is refused with what was meant', () => {
  const problem = (text: string) => {
    const read = parseClaim(text)
    return 'problem' in read ? read.problem : 'none'
  }
  assert.match(problem('p96 < 500ms'), /^there is no "p96"; did you mean "p9[059]"\?$/)
  assert.equal(problem('p95 < fast'), '"fast" is no value of p95: expected a duration such as 500ms or 2s')
  assert.equal(
    problem('error_ratio < 150%'),
    '"150%" is no value of error_ratio: expected a share such as 1% or 0.01',
  )
  assert.equal(problem('p95 < 5%'), '"5%" is no value of p95: expected a duration such as 500ms or 2s')
  assert.match(problem('all is well'), /^expected a claim/)
})

test('claims are held against calls and the worst of the servers', () => {
  const claims = ['p95 < 500ms', 'error_ratio < 1%', 'uptime > 30s', 'status = up'].map(claim)
  const good = judge(claims, figuresOf({ calls: 200, failed: 1, p95: 120 }), up)
  assert.deepEqual(
    good.map(({ found, holds }) => [found, holds]),
    [
      ['120ms', true],
      ['0.5%', true],
      ['40s', true],
      ['up', true],
    ],
  )
  assert.equal(allHold(good), true)
  const down = [...up, { name: 'b', isUp: false, uptimeMs: 0, probeFailures: 2 }]
  const bad = judge(claims, figuresOf({ calls: 200, failed: 2, p95: 500 }), down)
  assert.deepEqual(
    bad.map(({ holds }) => holds),
    [false, false, false, false],
  )
  assert.match(failuresIn(bad), /^p95 < 500ms \(found 500ms\), error_ratio < 1% \(found 1%\)/)
})

test('what was not measured neither holds nor fails', () => {
  const judged = judge([claim('p95 < 1s'), claim('status = up')], figuresOf({ calls: 0 }), up)
  assert.equal(allHold(judged), undefined)
  assert.equal(
    allHold(judge([claim('p95 < 1s'), claim('status = down')], figuresOf({ calls: 0 }), up)),
    false,
  )
})

test('probes that fail are counted in a row, of the worst server, and where there are none nothing is claimed', () => {
  const found = (probeFailures: readonly (number | undefined)[]) =>
    judge(
      [claim('probe_failures = 0')],
      figuresOf({}),
      probeFailures.map((failures, at) => ({
        name: `s${at}`,
        isUp: true,
        uptimeMs: 1,
        probeFailures: failures,
      })),
    ).map(({ found: words, holds }) => [words, holds])
  assert.deepEqual(found([0, 0]), [['0', true]])
  assert.deepEqual(found([0, 3]), [['3', false]])
  assert.deepEqual(found([0, undefined]), [['no probes', undefined]])
})
