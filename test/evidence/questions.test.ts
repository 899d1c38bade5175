import assert from 'node:assert/strict'
import { test } from 'node:test'
import { coverageIn, dueIn, estimatesIn, gradesIn, recoveryIn } from '../../src/evidence/questions.ts'
import { summary } from './runs.ts'

const DAY = 24

test('coverage counts evidence apart from runs that prove nothing', () => {
  const runs = [
    summary(1),
    summary(2, { verdict: 'no evidence' }),
    summary(3, { targets: [{ server: 'orders', tool: 'place', effect: 'write' }], verdict: 'no evidence' }),
  ]
  assert.deepEqual(coverageIn(runs), [
    { server: 'orders', fault: 'conn.latency', runs: 1, evidence: 0, lastEvidenceAt: undefined },
    { server: 'search', fault: 'conn.latency', runs: 2, evidence: 1, lastEvidenceAt: 3_600_000 },
  ])
})

test('recovery has the worst time, runs that did not recover, and kept promises', () => {
  const run = (at: number, measuredMs: number | null) =>
    summary(at, { rto: { promisedMs: 30_000, measuredMs } })
  const [found] = recoveryIn([run(1, 10_000), run(2, 47_000), run(3, null), run(4, 20_000)])
  assert.deepEqual(found, {
    kind: 'guarded',
    plan: 'drill',
    runs: 4,
    notRecovered: 1,
    median: 20_000,
    worst: 47_000,
    promised: 30_000,
    kept: 2,
    promises: 4,
  })
})

test('the median of an even number of recovery times is the mean of the two middle ones', () => {
  const run = (at: number, measuredMs: number) => summary(at, { rto: { promisedMs: null, measuredMs } })
  const found = [[run(1, 10), run(2, 40)], [run(1, 10), run(2, 20), run(3, 30), run(4, 90)], []].map(
    (runs) => recoveryIn(runs)[0]?.median,
  )
  assert.deepEqual(found, [25, 25, undefined])
})

test('estimates say by kind how often the author was right', () => {
  const of = (right: boolean) => ({ of: 'recover', expected: '30s', found: '20s', right })
  const found = estimatesIn([summary(1, { estimates: [of(true)] }), summary(2, { estimates: [of(false)] })])
  assert.deepEqual(
    found.map(({ of: kind, right, estimates }) => [kind, right, estimates]),
    [['recover', 1, 2]],
  )
})

test('a plan is due its interval after the last run that is evidence', () => {
  const everyMs = 90 * 86_400_000
  const runs = [summary(0, { everyMs }), summary(30 * DAY, { everyMs, verdict: 'no evidence' })]
  const at = (days: number) => dueIn(runs, days * 86_400_000)[0]
  assert.deepEqual([at(89)?.isOverdue, at(90)?.isOverdue], [false, true])
  assert.equal(dueIn([summary(1)], 0).length, 0)
  const never = dueIn([summary(5, { everyMs, verdict: 'no evidence' })], 5 * 3_600_000)[0]
  assert.deepEqual([never?.lastAt, never?.isOverdue], [undefined, true])
})

test('each plan is graded over its own last runs', () => {
  const runs = Array.from({ length: 12 }, (_, at) => summary(at, { verdict: at < 3 ? 'failed' : 'passed' }))
  const other = Array.from({ length: 5 }, (_, at) => summary(at, { name: 'other' }))
  assert.deepEqual(
    gradesIn([...runs, ...other], 9).map(({ plan, grade }) => [plan, grade]),
    [
      ['drill', 'B'],
      ['other', 'C'],
    ],
  )
})

test('a run of a wrong clock does not postpone a test', () => {
  const [everyMs, now] = [30 * DAY * 3_600_000, 100 * DAY * 3_600_000]
  const due = (...days: number[]) =>
    dueIn(
      days.map((day) => summary(day * DAY, { everyMs })),
      now,
    )[0]!
  assert.equal(due(50, 3_650).isOverdue, true, 'the run of a later time is no test')
  assert.equal(due(3_650).isOverdue, true)
  // The clock went back after the first run.
  assert.deepEqual([due(90, 50).lastAt, due(90, 50).isOverdue], [90 * DAY * 3_600_000, false])
  const [covered] = coverageIn([summary(90), summary(50)])
  assert.equal(covered!.lastEvidenceAt, 90 * 3_600_000)
})

test('a grade over several versions of a plan says so', () => {
  const runs = Array.from({ length: 8 }, (_, at) => summary(at, { shape: at < 4 ? 'strict' : 'loose' }))
  assert.ok(gradesIn(runs, 20)[0]!.reasons.includes('over 2 versions of the plan'))
  assert.equal(gradesIn(runs, 4)[0]!.reasons.length, 1)
})

test('runs of different kinds with the same name are different plans', () => {
  const everyMs = 90 * 86_400_000
  const guarded = Array.from({ length: 3 }, (_, at) => summary(at, { everyMs, verdict: 'failed' }))
  const scenarios = Array.from({ length: 5 }, (_, at) =>
    summary(at + 10, { kind: 'scenario', measuredBy: 'client', rto: { promisedMs: 9, measuredMs: 5 } }),
  )
  const runs = [...guarded, ...scenarios]
  assert.deepEqual(
    gradesIn(runs, 20).map(({ kind, plan, grade }) => [kind, plan, grade]),
    [
      ['guarded', 'drill', 'not enough data'],
      ['scenario', 'drill', 'C'],
    ],
  )
  assert.deepEqual(
    recoveryIn(runs).map(({ kind, runs: count, promises }) => [kind, count, promises]),
    [
      ['guarded', 3, 0],
      ['scenario', 5, 5],
    ],
  )
  // A later scenario of the same name is no test of the plan that is due.
  const [due, ...others] = dueIn(runs, 100 * DAY * 3_600_000)
  assert.deepEqual([due?.kind, due?.lastAt, others], ['guarded', 2 * 3_600_000, []])
})
