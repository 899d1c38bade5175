import assert from 'node:assert/strict'
import { test } from 'node:test'
import { DAY_MS } from '../../src/evidence/period.ts'
import type { RunSummary } from '../../src/evidence/summary.ts'
import {
  amongAll,
  comparable,
  compacted,
  measuredIn,
  regressions,
  type Trend,
  trendOf,
} from '../../src/evidence/trend.ts'
import { createRandom } from '../../src/experiments/statistics/random.ts'
import { normal } from '../experiments/statistics/simulated.ts'
import { summary } from './runs.ts'

const window = (cells: [number, number][], failed = 0, more: object = {}) => {
  const calls = cells.reduce((sum, [, count]) => sum + count, 0)
  return {
    phase: 'stage',
    stage: 0,
    arm: 'treatment',
    fromMs: 0,
    toMs: 1_000,
    calls,
    good: calls - failed,
    failed,
    wrong: null,
    cells,
    ...more,
  }
}

/** Returns a run on a day with a recovery time. */
function run(day: number, recoveryMs: number | null, more: Partial<RunSummary> = {}): RunSummary {
  return summary(0, {
    id: `run-${String(day).padStart(3, '0')}`,
    at: day * DAY_MS,
    faults: [],
    windows: [],
    rto: { promisedMs: null, measuredMs: recoveryMs },
    ...more,
  })
}

/** Recoveries around a level for each run, with a spread of 10 %. */
function runs(count: number, level: (day: number) => number, more: Partial<RunSummary> = {}): RunSummary[] {
  const random = createRandom(3)
  return Array.from({ length: count }, (_, day) =>
    run(day, level(day) * Math.exp(0.1 * normal(random)), more),
  )
}

const hashes = (policies: string) => ({ config: 'c', policies, faults: 'f', targets: 't', load: 'l' })

test('a step up of the recovery time degrades, with its run, its medians and the noise before', () => {
  const trend = trendOf(runs(30, (day) => (day < 15 ? 1_000 : 2_000)).reverse(), 'recovery')
  assert.equal(trend.answer, 'degrading')
  assert.ok('promise' in trend)
  assert.equal(trend.n, 30)
  assert.deepEqual([trend.shape, trend.split.index, trend.split.run], ['step', 15, 'run-015'])
  assert.ok(trend.split.before! > 900 && trend.split.before! < 1_100)
  assert.ok(trend.split.after! > 1_800 && trend.split.after! < 2_200)
  assert.ok(trend.statistic >= trend.limit && trend.p < 0.01)
  assert.deepEqual(
    [trend.noise?.from, trend.noise?.runs, trend.promise],
    ['runs before the change', 15, undefined],
  )
  assert.ok(trend.noise!.low! > 700 && trend.noise!.high! < 1_300)
})

test('a step down improves', () => {
  const trend = trendOf(
    runs(30, (day) => (day < 15 ? 2_000 : 1_000)),
    'recovery',
  )
  assert.equal(trend.answer, 'improving')
  assert.ok('p' in trend && trend.statistic <= -trend.limit)
})

test('a change within the promised time keeps the promise, and a longer recovery breaks the promise', () => {
  const slower = (promisedMs: number) =>
    trendOf(
      runs(30, (day) => (day < 15 ? 1_000 : 2_000)).map((one) => ({
        ...one,
        rto: { ...one.rto, promisedMs },
      })),
      'recovery',
    )
  const [kept, broken] = [slower(5_000), slower(2_000)]
  assert.ok('promise' in kept && 'promise' in broken)
  assert.deepEqual([kept.answer, kept.promise], ['degrading', 'kept'])
  assert.deepEqual([broken.answer, broken.promise], ['degrading', 'broken'])
})

test('runs without a recovery are above the time watched, and without a promise there was no recovery to measure', () => {
  const watched = run(0, null, { recoveries: [{ layer: 'breaker', name: 'x', ms: 60_000, censored: true }] })
  const promised = run(1, null, { rto: { promisedMs: 30_000, measuredMs: null } })
  assert.deepEqual(measuredIn(watched, 'recovery'), { value: 60_000, isCensored: true })
  assert.deepEqual(measuredIn(promised, 'recovery'), { value: 30_000, isCensored: true })
  assert.equal(measuredIn(run(2, null), 'recovery'), undefined)
  const lost = runs(24, () => 1_000).map((one, day) =>
    day < 12 ? one : { ...one, rto: { promisedMs: 30_000, measuredMs: null } },
  )
  const trend = trendOf(lost, 'recovery')
  assert.ok('promise' in trend)
  assert.deepEqual([trend.answer, trend.split.after, trend.promise], ['degrading', undefined, 'broken'])
})

test('the p95 and the error ratio come from all stages of the treatment together', () => {
  const windows = [
    window([[100, 90]], 9),
    window([[200, 5]], 0, { stage: 1 }),
    window([[300, 5]], 1, { stage: 1 }),
    window([[900, 500]], 500, { stage: null, phase: 'baseline' }),
    window([[900, 500]], 500, { arm: 'control' }),
  ]
  const measured = run(0, null, { windows })
  const p95 = measuredIn(measured, 'p95')!.value
  assert.ok(p95 > 0.1 * 1.02 ** 199 && p95 <= 0.1 * 1.02 ** 200)
  assert.equal(measuredIn(measured, 'error_ratio')!.value, 0.1)
  assert.equal(measuredIn(run(1, null), 'p95'), undefined)
  assert.equal(measuredIn(run(1, null), 'error_ratio'), undefined)
  for (const one of [measured, run(1, null)])
    for (const metric of ['recovery', 'p95', 'error_ratio'] as const)
      assert.deepEqual(
        measuredIn(compacted(one), metric),
        measuredIn(one, metric),
        `${metric}, in less memory`,
      )
  assert.equal(compacted(measured).windows.flatMap(({ cells }) => cells).length, 1)
})

test('errors that begin after runs without any error degrade', () => {
  const failing = (day: number) => (day < 15 ? 0 : 20 + (day % 5))
  const all = Array.from({ length: 30 }, (_, day) =>
    run(day, null, { windows: [window([[100, 500]], failing(day))] }),
  )
  const trend = trendOf(all, 'error_ratio')
  assert.ok('split' in trend)
  assert.deepEqual([trend.answer, trend.split.index, trend.split.before], ['degrading', 15, 0])
})

test('without a change the answer says which step would have been seen, from 18 runs on', () => {
  const trend = trendOf(
    runs(40, () => 1_000),
    'recovery',
  )
  assert.ok(trend.answer === 'no change found')
  assert.ok(trend.wouldHaveSeen!.factor! > 1.1 && trend.wouldHaveSeen!.factor! < 1.3)
  assert.ok(Math.abs(trend.wouldHaveSeen!.difference / (trend.wouldHaveSeen!.factor! - 1) - 1_000) < 100)
  const short = trendOf(
    runs(12, () => 1_000),
    'recovery',
  )
  assert.ok(short.answer === 'no change found')
  assert.equal(short.wouldHaveSeen, undefined)
})

test('a level that wanders from run to run is not independent', () => {
  const random = createRandom(5)
  let state = 0
  const all = Array.from({ length: 60 }, (_, day) => {
    state = 0.9 * state + 0.1 * normal(random)
    return run(day, 1_000 * Math.exp(state))
  })
  const answers = new Set<string>()
  for (let n = 8; n <= 60; n++) answers.add(trendOf(all.slice(0, n), 'recovery').answer)
  assert.ok(answers.has('not independent'), [...answers].join(', '))
})

test('seven runs are not enough', () => {
  assert.deepEqual(
    trendOf(
      runs(7, () => 1_000),
      'recovery',
    ),
    {
      metric: 'recovery',
      n: 7,
      across: undefined,
      answer: 'not enough data',
    },
  )
})

test('a mixture of runs is refused with the names of the differing fields', () => {
  const mixed = runs(20, () => 1_000).map((one, day) =>
    day === 7 ? { ...one, era: 'legacy', host: { ...one.host, class: 'other' } } : one,
  )
  const trend = trendOf(mixed, 'recovery')
  assert.ok(trend.answer === 'not comparable')
  assert.deepEqual(trend.differ, ['host.class', 'era'])
  assert.deepEqual(
    comparable(mixed).map((series) => series.runs.length),
    [19, 1],
  )
})

test('other policies are comparable on demand only, and the answer says so', () => {
  const mixed = runs(30, (day) => (day < 15 ? 1_000 : 2_000)).map((one, day) => ({
    ...one,
    hashes: hashes(day < 15 ? 'a' : 'b'),
  }))
  assert.equal(trendOf(mixed, 'recovery').answer, 'not comparable')
  assert.equal(comparable(mixed).length, 2)
  const trend = trendOf(mixed, 'recovery', { across: 'policies' })
  assert.deepEqual([trend.answer, trend.across], ['degrading', 'policies'])
  const [series, ...others] = comparable(mixed, { across: 'policies' })
  assert.deepEqual([others.length, series!.across, 'policies' in series!.key], [0, 'policies', false])
})

test('the noise band is from runs with the same policies in both arms, if there are any', () => {
  const arm = (name: string) => ({
    name,
    set: 'steady',
    calls: 1,
    good: 1,
    wrong: null,
    rejected: 0,
    unjudged: 0,
    attempts: 1,
  })
  const all = runs(20, () => 1_000, { kind: 'comparison', arms: [arm('control'), arm('treatment')] })
  const trend = trendOf(all, 'recovery')
  assert.ok('noise' in trend)
  assert.deepEqual([trend.noise?.from, trend.noise?.runs], ['A/A runs', 20])
  const plain = trendOf(
    runs(20, () => 1_000),
    'recovery',
  )
  assert.ok('noise' in plain && plain.noise === undefined)
})

test('among many trends a change needs a smaller p-value', () => {
  const weak = {
    ...trendOf(
      runs(30, (day) => (day < 15 ? 1_000 : 2_000)),
      'recovery',
    ),
    p: 0.03,
  } as Trend
  const none = {
    ...trendOf(
      runs(30, () => 1_000),
      'recovery',
    ),
    p: 0.5,
  } as Trend
  const few = trendOf(
    runs(5, () => 1_000),
    'recovery',
  )
  assert.deepEqual(amongAll([weak, few]), [
    { adjustedP: 0.03, holds: true },
    { adjustedP: undefined, holds: false },
  ])
  assert.deepEqual(amongAll([few, none, weak]), [
    { adjustedP: undefined, holds: false },
    { adjustedP: 0.5, holds: false },
    { adjustedP: 0.06, holds: false },
  ])
})

test('the list of regressions begins with the degrading series that holds', () => {
  const other = runs(30, () => 1_000, { shape: 'other' }).map((one) => ({ ...one, id: `${one.id}-o` }))
  const slower = runs(30, (day) => (day < 15 ? 1_000 : 3_000))
  const list = regressions([...other, ...slower])
  assert.equal(list.length, 6)
  assert.deepEqual(
    [list[0]!.trend.answer, list[0]!.holds, list[0]!.key.shape, list[0]!.run],
    ['degrading', true, 'shape', 'run-029'],
  )
  assert.equal(list[1]!.trend.answer, 'no change found')
  assert.ok(list.slice(2).every(({ trend, holds }) => trend.answer === 'not enough data' && !holds))
})

test('runs without evidence do not hide a trend', () => {
  const slower = runs(30, (day) => (day < 15 ? 1_000 : 2_000))
  const idle = slower.map((one) => ({
    ...one,
    id: `${one.id}-idle`,
    at: one.at + 1,
    verdict: 'no evidence' as const,
    rto: { ...one.rto, measuredMs: 0 },
  }))
  const trend = trendOf([...slower, ...idle], 'recovery')
  assert.deepEqual([trend.answer, trend.n], ['degrading', 30])
})
