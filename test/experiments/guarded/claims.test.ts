import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Claim, parseClaim } from '../../../src/claims/claim.ts'
import {
  failuresIn,
  judgeRun,
  type Measurable,
  measurable,
  type ServerVital,
} from '../../../src/experiments/guarded/claims.ts'
import { figuresOf } from './figures.ts'

const up: ServerVital = { name: 'a', isUp: true, uptimeMs: 40_000, probeFailures: 0 }

function judged(texts: readonly string[], figures: object, servers: readonly ServerVital[]) {
  const claims = texts.map((text) => parseClaim(text, measurable) as Claim<Measurable>)
  return judgeRun(claims, figuresOf(figures), servers)
}

const foundBy = (...given: Parameters<typeof judged>) =>
  judged(...given).map(({ found, holds }) => `${found}: ${holds}`)

test('claims are held against calls and the worst of the servers', () => {
  const claims = ['p95 < 500ms', 'error_ratio < 1%', 'uptime > 30s', 'status = up']
  const good = foundBy(claims, { calls: 200, failed: 1, p95: 120 }, [up])
  assert.deepEqual(good, ['120ms: true', '0.5%: true', '40s: true', 'up: true'])
  const down = { name: 'b', isUp: false, uptimeMs: 0, probeFailures: 2 }
  const bad = judged(claims, { calls: 200, failed: 2, p95: 500 }, [up, down])
  assert.ok(bad.every(({ holds }) => holds === false))
  assert.match(failuresIn(bad), /^p95 < 500ms \(found 500ms\), error_ratio < 1% \(found 1%\)/)
})

test('an unmeasured claim neither holds nor fails', () => {
  const found = foundBy(['p95 < 1s', 'status = up', 'status = down'], { calls: 0 }, [up])
  assert.deepEqual(found, ['no calls: undefined', 'up: true', 'up: false'])
})

test('probes that fail are counted in a row, of the worst server, and where there are none nothing is claimed', () => {
  const found = (...failures: readonly (number | undefined)[]) =>
    foundBy(
      ['probe_failures = 0'],
      {},
      failures.map((probeFailures) => ({ ...up, probeFailures })),
    )
  assert.deepEqual(found(0, 0), ['0: true'])
  assert.deepEqual(found(0, 3), ['3: false'])
  assert.deepEqual(found(0, undefined), ['no probes: undefined'])
})
