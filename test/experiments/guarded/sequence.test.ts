import assert from 'node:assert/strict'
import { test } from 'node:test'
import { noHits, type RunRecord, type SampledFigures } from '../../../src/experiments/guarded/record.ts'
import { sequenceOf } from '../../../src/experiments/guarded/sequence.ts'
import { figuresOf } from './figures.ts'
import { specOf, stage } from './world.ts'

type Row = Partial<SampledFigures>

const usual = { calls: 20, failed: 0, begun: 20, retries: 0, rejections: {}, p50: 10, p95: 20 }

/** A run with a row of samples a second: 100 usual calls in the baseline, then these rows of the treatment. */
const runOf = (rows: readonly Row[], more: Partial<RunRecord> = {}): RunRecord => ({
  ...stage(specOf()).lifecycle.record,
  baseline: figuresOf({ p95: 20 }),
  detection: { firstEffectAtMs: 500, afterMs: undefined, sign: undefined },
  faults: [
    { name: 'pool', type: 'pool.exhaust', ...noHits, decided: 9, injected: 9 },
    { name: 'idle', type: 'rpc.error', ...noHits, decided: 9, injected: 0 },
  ],
  samples: rows.map((row, at) => ({
    atMs: (at + 1) * 1_000,
    phase: 'stage' as const,
    share: 0.5,
    injected: 9,
    arms: { treatment: { ...usual, ...row }, control: usual },
  })),
  ...more,
})

const signsOf = (run: RunRecord) => sequenceOf(run).map(({ sign, atMs }) => [sign, atMs])

test('the order of signs tells a cause from its consequences', () => {
  const run = runOf([
    {},
    { p95: 300, retries: 5 },
    { p95: 600, retries: 40 },
    { p95: 600, retries: 40, rejections: { rate_limited: 8 } },
    { p95: 600, retries: 40, rejections: { rate_limited: 30 }, failed: 12 },
  ])
  assert.deepEqual(sequenceOf(run), [
    { atMs: 500, sign: 'faults', what: 'first effect of pool (pool.exhaust)' },
    { atMs: 2_000, sign: 'latency', what: 'p95 was 300ms, baseline 20ms' },
    { atMs: 3_000, sign: 'retries', what: '40 retries while 20 calls began, baseline 0 a call' },
    {
      atMs: 4_000,
      sign: 'rejections',
      what: 'the gateway rejected 8 attempts (20 calls ended): rate_limited',
    },
    { atMs: 5_000, sign: 'errors', what: '60% of the calls failed, baseline 0%' },
  ])
})

test('usual retries, rejections and failures are no signs', () => {
  const before = { failed: 10, rejections: { rate_limited: 10 } }
  const rows = [{ retries: 20, failed: 2, rejections: { rate_limited: 2 } }]
  const known = runOf(rows)
  const earlier = {
    atMs: 0,
    phase: 'baseline' as const,
    share: 0,
    injected: 0,
    arms: { all: { ...usual, retries: 20 } },
  }
  const run = { ...known, samples: [earlier, ...known.samples], baseline: figuresOf({ p95: 20, ...before }) }
  assert.deepEqual(signsOf(run), [['faults', 500]])
  assert.deepEqual(
    signsOf(runOf(rows)).map(([sign]) => sign),
    ['faults', 'retries', 'rejections', 'errors'],
  )
})

test('trouble before the first effect, and in a row of few calls, is no sign', () => {
  const bad = { retries: 40, failed: 20, p95: 900 }
  assert.deepEqual(
    signsOf(runOf([bad], { detection: { firstEffectAtMs: 1_500, afterMs: undefined, sign: undefined } })),
    [['faults', 1_500]],
  )
  assert.deepEqual(signsOf(runOf([{ calls: 4, begun: 4, retries: 8, failed: 4, p95: 900 }])), [
    ['faults', 500],
  ])
})

test('without an effect or a baseline there is no sequence', () => {
  assert.deepEqual(sequenceOf(runOf([{ failed: 20 }], { detection: undefined })), [])
  assert.deepEqual(sequenceOf(runOf([{ failed: 20 }], { baseline: undefined })), [])
})
