import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { RunRecord, StageRecord } from '../../src/experiments/guarded/record.ts'
import { noHits } from '../../src/experiments/guarded/record.ts'
import { gradeOf } from '../../src/evidence/grade.ts'
import { runSummary } from '../../src/evidence/summary.ts'
import { summaryOf } from '../../src/evidence/summary-of.ts'
import { judgementOf, quantileInterval } from '../../src/evidence/verdict.ts'
import type { Reason } from '../../src/evidence/verdict-names.ts'
import { figuresOf } from '../experiments/guarded/figures.ts'
import { specOf, stage } from '../experiments/guarded/world.ts'
import { summary } from './runs.ts'

const spec = specOf({
  hypothesis: {
    steadyState: ['error_ratio < 1%', 'p95 < 500ms'],
    during: ['error_ratio < 5%', 'p95 < 500ms'],
  },
})

const fault = { name: 'broken', type: 'rpc.error', ...noHits, decided: 100, injected: 100, masked: 100 }

/** A stage of `calls` calls of the treatment in each second, with a fault in each. */
const stageOf = (more: Partial<StageRecord> = {}): StageRecord => ({
  share: 0.5,
  beganAtMs: 2_000,
  endedAtMs: 12_000,
  control: figuresOf({ calls: 400, p95: 20 }),
  treatment: figuresOf({ calls: 400, p95: 20 }),
  cells: { control: [[270, 400]], treatment: [[270, 400]] },
  claims: [
    { claim: 'error_ratio < 5%', found: '0%', holds: true },
    { claim: 'p95 < 500ms', found: '20ms', holds: true },
  ],
  ...more,
})

const sampled = { calls: 40, failed: 0, begun: 40, retries: 0, rejections: {}, p50: 10, p95: 20 }

const rowsOf = (count: number, { injected = 10, treatment = sampled, everyMs = 1_000 } = {}) =>
  Array.from({ length: count }, (_, at) => ({
    atMs: 2_000 + (at + 1) * everyMs,
    phase: 'stage' as const,
    share: 0.5,
    injected,
    arms: { treatment, control: sampled },
  }))

/** A run that proves what it claims. */
const good = (more: Partial<RunRecord> = {}): RunRecord => ({
  ...stage(spec).lifecycle.record,
  spec,
  state: 'completed',
  phase: 'over',
  reason: 'the hypothesis held',
  beganAt: 1_000,
  endedAt: 20_000,
  stage: 0,
  hypothesis: { before: [{ claim: 'error_ratio < 1%', found: '0%', holds: true }], after: [] },
  baseline: figuresOf({ calls: 200, p95: 20 }),
  stages: [stageOf()],
  samples: rowsOf(10),
  faults: [fault],
  rollback: { armed: [], arms: [], atMs: 12_000, tookMs: 1, chaos: 'disarmed', troubled: [] },
  recovery: { recoveredAfterMs: 9_000, steadyAfterMs: 500, layers: {}, waitedMs: 500, limitMs: 20_000 },
  ...more,
})

test('a run passes when its faults acted, calls met the faults, and the intervals are inside the claims', () => {
  const { verdict, reasons, claims } = judgementOf(good())
  assert.deepEqual([verdict, reasons], ['passed', []])
  assert.deepEqual(
    claims.map(({ status }) => status),
    ['proven', 'proven'],
  )
})

const breach = {
  rule: { metric: 'error_ratio' as const, above: 0.1, of: 'treatment' as const, for: 0 },
  value: 0.4,
  calls: 40,
  forMs: 0,
}

test('a breach of the gate and a broken hypothesis are failures', () => {
  const claims = [{ claim: 'error_ratio < 5%', found: '40%', holds: false }]
  const treatment = figuresOf({ calls: 400, failed: 160 })
  const failed = { stages: [stageOf({ treatment, claims })] }
  assert.equal(judgementOf(good({ state: 'deviated', ...failed })).verdict, 'failed')
  assert.equal(judgementOf(good({ state: 'aborted', breach, ...failed })).verdict, 'failed')
  // The gate may end a run after few calls.
  const few = { stages: [stageOf({ treatment: figuresOf({ calls: 12, failed: 6 }), claims })] }
  assert.equal(judgementOf(good({ state: 'aborted', breach, ...few })).verdict, 'failed')
})

test('a claim about a share needs enough calls, and without this proof the run only held', () => {
  const withCalls = (calls: number) =>
    judgementOf(good({ stages: [stageOf({ treatment: figuresOf({ calls }) })] })).verdict
  // 73 calls without a failure prove less than 5 %: the upper bound of Wilson's interval is 4.999 %.
  assert.deepEqual([72, 73].map(withCalls), ['held (weak)', 'passed'])
})

const loose = specOf({
  hypothesis: { steadyState: ['error_ratio <= 100%'], during: ['error_ratio <= 100%'] },
})

const alwaysTrue = specOf({
  hypothesis: { steadyState: ['error_ratio < 1%'], during: ['error_ratio >= 0%', 'p95 >= 0ms'] },
})

/** Runs that prove nothing, with the reason of each. */
const planted: readonly (readonly [string, Partial<RunRecord>, Reason])[] = [
  [
    'no measured value can break the claims',
    {
      spec: alwaysTrue,
      stages: [
        stageOf({
          claims: [
            { claim: 'error_ratio >= 0%', found: '0%', holds: true },
            { claim: 'p95 >= 0ms', found: '20ms', holds: true },
          ],
        }),
      ],
    },
    'loose_tolerance',
  ],
  ['the record has no counts of the fault', { faults: [] }, 'no_effective_fault'],
  ['no fault hit', { faults: [{ ...fault, injected: 0, masked: 0 }] }, 'no_effective_fault'],
  ['four faults hit', { faults: [{ ...fault, injected: 4, masked: 4 }] }, 'no_effective_fault'],
  [
    'all calls ended before the fault',
    { faults: [{ ...fault, notReached: 100, masked: 0 }] },
    'no_effective_fault',
  ],
  [
    'the fault had nothing to change',
    { faults: [{ ...fault, notApplicable: 98, masked: 2 }] },
    'no_effective_fault',
  ],
  [
    'one of two faults never hit',
    { faults: [fault, { ...fault, name: 'b', injected: 0 }] },
    'no_effective_fault',
  ],
  [
    'a process was never killed',
    { faults: [{ ...fault, type: 'proc.kill', injected: 0 }] },
    'no_effective_fault',
  ],
  ['the faults were over before the first call', { samples: overBefore() }, 'not_overlapping'],
  ['the treatment had calls in half of the seconds', { samples: halfMet() }, 'not_overlapping'],
  ['no second shows an injection', { samples: rowsOf(10, { injected: 0 }) }, 'not_overlapping'],
  ['no samples were kept', { samples: [] }, 'not_overlapping'],
  ['three calls', { stages: [stageOf({ treatment: figuresOf({ calls: 3 }) })] }, 'below_floor'],
  ['29 calls', { stages: [stageOf({ treatment: figuresOf({ calls: 29 }) })] }, 'below_floor'],
  ['no stage', { stages: [] }, 'below_floor'],
  [
    'few calls in the second stage',
    { stages: [stageOf(), stageOf({ treatment: figuresOf({ calls: 5 }) })] },
    'below_floor',
  ],
  [
    'the steady state did not hold before',
    { hypothesis: { before: [{ claim: 'a', found: '9%', holds: false }], after: [] } },
    'unsteady_before',
  ],
  [
    'the steady state was not measured before',
    { hypothesis: { before: [{ claim: 'a', found: 'no calls', holds: undefined }], after: [] } },
    'unsteady_before',
  ],
  ['the steady state was never judged', { hypothesis: { before: [], after: [] } }, 'unsteady_before'],
  [
    'the control failed too',
    { stages: [stageOf({ control: figuresOf({ calls: 400, failed: 80 }) })] },
    'control_failed_too',
  ],
  [
    'the control was as slow',
    { stages: [stageOf({ control: figuresOf({ calls: 400, p95: 900 }) })] },
    'control_failed_too',
  ],
  [
    'the control failed beside a failing treatment',
    {
      state: 'deviated',
      stages: [
        stageOf({
          control: figuresOf({ calls: 400, failed: 200 }),
          treatment: figuresOf({ calls: 400, failed: 200 }),
        }),
      ],
    },
    'control_failed_too',
  ],
  ['the engine failed', { engineErrors: 1 }, 'engine_error'],
  [
    'the gateway ended during the run',
    {
      state: 'failed',
      rollback: { armed: [], arms: [], atMs: undefined, tookMs: undefined, chaos: 'disarmed', troubled: [] },
    },
    'journal_gap',
  ],
  ['the run could not go on', { state: 'failed' }, 'journal_gap'],
  [
    'half a minute is missing in the samples',
    { samples: [...rowsOf(5), ...rowsOf(5).map((row) => ({ ...row, atMs: row.atMs + 35_000 }))] },
    'journal_gap',
  ],
  ['the claim cannot be broken', { spec: loose }, 'loose_tolerance'],
  [
    'the claim is above what the rate can break',
    {
      spec: specOf({
        faults: [{ name: 'broken', type: 'rpc.error', rate: 0.1 }],
        hypothesis: { steadyState: ['error_ratio < 1%'], during: ['error_ratio < 20%'] },
      }),
    },
    'loose_tolerance',
  ],
  [
    'the claim allows a minute',
    { spec: specOf({ hypothesis: { steadyState: ['p95 < 60s'] } }) },
    'loose_tolerance',
  ],
  [
    'the gate cannot be broken',
    { rules: [{ metric: 'error_ratio', above: 1, of: 'treatment', for: 0 }] },
    'loose_tolerance',
  ],
  ['somebody stopped the run', { state: 'aborted', reason: 'ops stopped it' }, 'stopped'],
  ['the run was killed', { state: 'aborted', reason: 'killed', stages: [] }, 'stopped'],
  ['the run was inconclusive', { state: 'inconclusive' }, 'stopped'],
  ['the run was invalid', { state: 'invalid' }, 'stopped'],
]

/** The faults acted in the first second only, and the first call came later. */
function overBefore() {
  const none = { ...sampled, calls: 0, begun: 0 }
  return [
    ...rowsOf(1, { treatment: none }),
    ...rowsOf(9, { injected: 0 }).map((row) => ({ ...row, atMs: row.atMs + 1_000 })),
  ]
}

function halfMet() {
  const none = { ...sampled, calls: 0, begun: 0 }
  return rowsOf(10).map((row, at) =>
    at % 2 === 0 ? row : { ...row, arms: { ...row.arms, treatment: none } },
  )
}

test('a call that waits for its answer meets a fault in each second', () => {
  const [first, ...others] = rowsOf(10)
  const begins = { ...sampled, calls: 0, begun: 40 }
  const waits = { ...sampled, calls: 0, begun: 0 }
  const rows = (treatment: typeof sampled) =>
    others.map((row) => ({ ...row, arms: { ...row.arms, treatment } }))
  const verdict = (samples: RunRecord['samples']) => judgementOf(good({ samples })).verdict
  const waiting = { ...first!, arms: { ...first!.arms, treatment: begins } }
  assert.equal(verdict([waiting, ...rows(waits)]), 'passed')
  assert.equal(verdict([first!, ...rows(waits)]), 'no evidence', 'all calls had ended')
})

for (const [name, more, reason] of planted)
  test(`a run proves nothing when ${name}`, () => {
    const { verdict, reasons } = judgementOf(good(more))
    assert.equal(verdict, 'no evidence')
    assert.ok(reasons.includes(reason), reasons.join())
  })

test('the summary of a run fits the format, and states its figures once', () => {
  const facts = {
    version: '0.1.0',
    gateway: null,
    bootId: 'boot',
    replicas: 1,
    host: { class: 'h', cpu: 'c', cores: 2, memoryBytes: 1, node: '20', container: false },
    era: 'modern',
    transport: 'http',
    effectOf: () => 'read_only',
  }
  const found = summaryOf(good(), facts)
  assert.deepEqual(runSummary.parse(JSON.parse(JSON.stringify(found))), found)
  assert.deepEqual([found.verdict, found.rto], ['passed', { promisedMs: null, measuredMs: 9_000 }])
  assert.deepEqual(
    found.windows.map(({ arm, calls }) => [arm, calls]),
    [
      ['control', 400],
      ['treatment', 400],
    ],
  )
})

test('grades take the lower bound: four runs for C, nine for B, 35 for A', () => {
  const gradeAfter = (held: number, failed = 0) =>
    gradeOf([
      ...Array.from({ length: held }, () => summary()),
      ...Array.from({ length: failed }, () => summary(0, { verdict: 'failed' })),
    ]).grade
  assert.deepEqual(
    [3, 4, 8, 9, 34, 35].map((held) => gradeAfter(held)),
    ['not enough data', 'C', 'C', 'B', 'B', 'A'],
  )
  assert.deepEqual([gradeAfter(10), gradeAfter(9, 1), gradeAfter(5, 5)], ['B', 'C', 'D'])
  assert.equal(gradeOf([]).grade, 'not enough data')
  // Runs without evidence count for nothing.
  const none = Array.from({ length: 50 }, () => summary(0, { verdict: 'no evidence' }))
  assert.equal(gradeOf([...none, summary()]).grade, 'not enough data')
})

test('a grade is never better than the share of runs within their promised recovery time', () => {
  const promised = (measuredMs: number | null) => summary(0, { rto: { promisedMs: 30_000, measuredMs } })
  const runs = (kept: number, late: number) => [
    ...Array.from({ length: kept }, () => promised(20_000)),
    ...Array.from({ length: late }, (_, at) => promised(at === 0 ? null : 47_000)),
  ]
  assert.deepEqual(
    [gradeOf(runs(40, 0)), gradeOf(runs(30, 10)), gradeOf(runs(10, 30))].map(({ grade }) => grade),
    ['A', 'B', 'D'],
  )
  assert.match(gradeOf(runs(30, 10)).reasons.join(), /only 30 of 40 recovered within the promised time/)
})

test('the interval of a quantile is of the ranks that order statistics demand', () => {
  // 100 durations of rising cells. Ranks for p50 at 95 %: 40 and 61 (David and Nagaraja, table of sign test).
  const cells = Array.from({ length: 100 }, (_, at): [number, number] => [at + 1, 1])
  const msOf = (cell: number) => 0.1 * 1.02 ** cell
  const { low, high } = quantileInterval(cells, 0.5)!
  assert.ok(Math.abs(low - msOf(39)) < 1e-9, `${low}`)
  assert.ok(Math.abs(high - msOf(61)) < 1e-9, `${high}`)
  assert.equal(quantileInterval([[5, 20]], 0.99)!.high, Infinity, '20 durations say nothing about p99')
  assert.equal(quantileInterval([], 0.5), undefined)
})

test('calls that never ended prove nothing', () => {
  const withWaiting = (waiting: number) =>
    judgementOf(good({ stages: [stageOf({ treatment: figuresOf({ calls: 400, p95: 20, waiting }) })] }))
  assert.equal(withWaiting(0).verdict, 'passed')
  // Forty of 440 calls hang: nobody knows whether less than 5 % fail, or 95 % end within 500 ms.
  const { verdict, claims } = withWaiting(40)
  assert.equal(verdict, 'held (weak)')
  assert.deepEqual(
    claims.map(({ status }) => status),
    ['held', 'held'],
  )
  assert.ok(claims[0]!.high! > 0.09)
})

test('a long name from a server does not hide its run', () => {
  const long = `${'x'.repeat(300)}\u202e`
  const run = good({
    actor: long,
    approver: long,
    targets: { environment: 'staging', servers: [{ name: 'search', tools: [long], hit: [long, ''] }] },
    troubles: [{ name: `breaker search/${long}`, state: 'open', fromMs: 1, untilMs: 2 }],
    recovery: { ...good().recovery!, layers: { [`breaker search/${long}`]: 5, [long]: null } },
  })
  const facts = { ...summary(), effectOf: () => 'read_only' }
  const { version, gateway, bootId, replicas, host, era, transport, effectOf } = facts
  const made = summaryOf(run, { version, gateway, bootId, replicas, host, era, transport, effectOf })
  assert.deepEqual(runSummary.safeParse(made).error?.issues, undefined)
  assert.equal(made.targets[0]!.tool, 'x'.repeat(200))
})
