import assert from 'node:assert/strict'
import { test } from 'node:test'
import { evidenceFor } from '../../src/evidence/compliance.ts'
import { parsePeriod, type Period } from '../../src/evidence/period.ts'
import { coverageIn, gradesIn } from '../../src/evidence/questions.ts'
import type { GatewayFacts } from '../../src/evidence/summary-of.ts'
import { runSummary } from '../../src/evidence/summary.ts'
import { shippedMapping } from '../../src/commands/evidence/mappings.ts'
import { noHits } from '../../src/experiments/guarded/record.ts'
import { gameDayVerdict, summaryOfGameDay } from '../../src/gamedays/summary.ts'
import { summary } from '../evidence/runs.ts'
import { doneBy, gameDayOf, notRun, NOW, planOf, runOf } from './report-fixtures.ts'

const facts: GatewayFacts = {
  version: '9.9.9',
  gateway: null,
  bootId: 'boot',
  replicas: 1,
  host: { class: 'host', cpu: 'cpu', cores: 2, memoryBytes: 8, node: '20.19.0', container: false },
  era: 'modern',
  transport: 'http',
  effectOf: () => 'read_only',
}

const passed = runOf('run-1', 'slow')
const failed = runOf('run-2', 'gone', { failed: 20 })
const silent = runOf('run-3', 'silent', { samples: [] })
const [stage] = passed.stages
const weak = runOf('run-4', 'weak', {
  // Forty calls without a failure do not prove less than 5 % of failures.
  stages: [{ ...stage!, treatment: { ...stage!.treatment, calls: 40, attempts: 40 } }],
})

test('a GameDay has the verdict of its worst experiment: failed, then no evidence, then held, then passed', () => {
  const verdictOf = (...steps: Parameters<typeof gameDayVerdict>[0]['steps']) => {
    const { verdict, reasons } = gameDayVerdict({ steps })
    return [verdict, ...reasons]
  }
  assert.deepEqual(verdictOf(doneBy(passed)), ['passed'])
  assert.deepEqual(verdictOf(doneBy(passed), doneBy(weak)), ['held (weak)'])
  assert.deepEqual(verdictOf(doneBy(weak), doneBy(silent)), ['no evidence', 'not_overlapping'])
  assert.deepEqual(verdictOf(doneBy(passed), notRun('left')), ['no evidence', 'not_run'])
  assert.deepEqual(verdictOf(doneBy(silent), notRun('left')), ['no evidence', 'not_overlapping', 'not_run'])
  assert.deepEqual(verdictOf(doneBy(failed), doneBy(silent), notRun('left')), ['failed'])
})

test('a summary merges targets, faults and hashes of the runs, and keeps the format of the index', () => {
  const other = runOf('run-5', 'other', { hashes: { config: 'c', policies: 'changed', faults: 'f' } })
  const record = gameDayOf({ steps: [doneBy(passed), doneBy(other)] })
  const found = summaryOfGameDay(record, [passed, other], facts)
  assert.deepEqual(runSummary.parse(found), found)
  const { id, kind, name, at, tookMs, version, verdict, targets, faults, windows, approver, hashes, state } =
    found
  assert.deepEqual(
    [id, kind, name, at, tookMs, version, verdict, state],
    [record.id, 'gameday', 'payments-q4', record.startedAt, 3_600_000, '0.1.0', 'passed', 'over'],
  )
  assert.deepEqual([targets.length, windows.length, approver], [1, 0, 'boss'])
  assert.deepEqual(
    faults.map(({ type, applied, delayed }) => [type, applied, delayed]),
    [['conn.latency', 200, 200]],
  )
  assert.equal(hashes.config, 'c')
  assert.notEqual(hashes.policies, 'p')
})

test('faults of an experiment without evidence are named, and have no effect', () => {
  const killed = {
    ...silent,
    faults: [{ name: 'kill', type: 'proc.kill', ...noHits, decided: 9, injected: 9, surfaced: 9 }],
  }
  const steps = [doneBy(failed), doneBy(killed)]
  const { faults } = summaryOfGameDay(gameDayOf({ steps }), [failed, killed], facts)
  assert.deepEqual(
    faults.map(({ type, drawn, applied, surfaced }) => [type, drawn, applied, surfaced]),
    [
      ['conn.latency', 100, 100, 0],
      ['proc.kill', 0, 0, 0],
    ],
  )
})

test('lists stay bounded for a GameDay of many experiments', () => {
  const runs = Array.from({ length: 32 }, (_, n) => {
    const run = runOf(`run-${n}`, `e${n}`)
    const [fault] = run.faults
    return {
      ...run,
      faults: [0, 1, 2].map((at) => ({ ...fault!, name: `fault-${n}-${at}` })),
      targets: {
        environment: 'staging',
        servers: [{ name: `s${n}`, tools: ['a', 'b', 'c'], hit: ['a', 'b', 'c'] }],
      },
    }
  })
  const found = summaryOfGameDay(gameDayOf({ steps: runs.map((run) => doneBy(run)) }), runs, facts)
  assert.deepEqual([found.faults.length, found.targets.length], [64, 64])
  assert.ok(runSummary.safeParse(found).success)
})

test('the recovery of a GameDay is the one that kept its promise worst', () => {
  const after = (name: string, recoveredAfterMs: number | undefined, rto?: number) => {
    const run = runOf(`run-${name}`, name)
    return {
      ...run,
      spec: { ...run.spec, recovery: { ...run.spec.recovery, rto } },
      recovery: { ...run.recovery!, recoveredAfterMs },
    }
  }
  const worst = (...runs: readonly ReturnType<typeof after>[]) => {
    const { promisedMs, measuredMs } = summaryOfGameDay(
      gameDayOf({ steps: runs.map((run) => doneBy(run)) }),
      runs,
      facts,
    ).rto
    return [promisedMs, measuredMs]
  }
  assert.deepEqual(worst(after('a', 9_000, 10_000), after('b', 12_000, 60_000)), [10_000, 9_000])
  assert.deepEqual(worst(after('a', 9_000, 10_000), after('b', undefined, 60_000)), [60_000, null])
  assert.deepEqual(worst(after('a', 9_000, 10_000), after('b', 50_000)), [10_000, 9_000])
  assert.deepEqual(worst(after('a', 9_000), after('b', 50_000)), [null, 50_000])
  assert.deepEqual(worst({ ...after('a', 9_000, 10_000), samples: [] }), [null, null])
})

test('the hashes of a GameDay whose records are gone are those of nothing, and the verdict stays', () => {
  const found = summaryOfGameDay(gameDayOf(), [], facts)
  assert.ok(runSummary.safeParse(found).success)
  assert.deepEqual([found.verdict, found.faults, found.targets], ['passed', [], []])
})

test('GameDays of one shape repeat each other, and other words make no other shape', () => {
  const shape = (more: object) => summaryOfGameDay(gameDayOf({ plan: planOf(more) }), [], facts).shape
  assert.equal(shape({}), shape({ title: 'Other words', hypothesis: 'Other words.' }))
  assert.notEqual(shape({}), shape({ scope: { servers: ['*'], environment: 'staging' } }))
  assert.notEqual(shape({}), shape({ rto: '10s' }))
})

test('a grade never mixes a GameDay and an experiment of the same name, and coverage counts experiments once', () => {
  const day = { ...summaryOfGameDay(gameDayOf(), [passed], facts), name: 'drill' }
  const runs = [summary(0), summary(1), day]
  assert.deepEqual(
    gradesIn(runs, 20).map(({ plan, runs }) => [plan, runs]),
    [
      ['drill', 1],
      ['drill', 2],
    ],
  )
  assert.deepEqual(
    coverageIn(runs).map(({ server, runs }) => [server, runs]),
    [['search', 2]],
  )
})

test('a GameDay supports the requirements that ask for exercises', async () => {
  const period = parsePeriod('2026Q4', NOW) as Period
  const mapping = await shippedMapping('iso-22301')
  const day = summaryOfGameDay(gameDayOf(), [passed], facts)
  for (const { id, runs } of evidenceFor(mapping, [day], period))
    assert.deepEqual(
      runs.map((run) => run.id),
      [day.id],
      id,
    )
  const broken = summaryOfGameDay(gameDayOf({ steps: [doneBy(passed), notRun('left')] }), [passed], facts)
  for (const { id, gap, others } of evidenceFor(mapping, [broken], period)) {
    assert.equal(gap, 'only runs without evidence', id)
    assert.deepEqual(
      others.map(({ why }) => why),
      ['no evidence'],
    )
  }
})
