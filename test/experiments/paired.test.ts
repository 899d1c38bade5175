import assert from 'node:assert/strict'
import { test } from 'node:test'
import { compareTwins, type PairedReport, type Twin, type TwinPair } from '../../src/experiments/paired.ts'
import { pairedMarkdown } from '../../src/experiments/paired-text.ts'

const words = { control: 'default', treatment: 'cautious' }

const twin = (isGood: boolean, more: Partial<Twin> = {}): Twin => ({
  outcome: isGood ? 'succeeded' : 'failed',
  calls: 4,
  right: isGood ? 4 : 3,
  attempts: 4,
  durations: [10, 20, 30, 40],
  ...more,
})

/** Pairs by which twins succeed: `10` succeeds in the control only. */
const pairs = (counts: Readonly<Record<'11' | '10' | '01' | '00', number>>, treatment: Partial<Twin> = {}) =>
  Object.entries(counts).flatMap(([which, count]) =>
    Array.from({ length: count }, (_, at): TwinPair => ({
      task: `${which}-${at}`,
      kind: at % 2 === 0 ? 'even' : 'odd',
      control: twin(which.startsWith('1')),
      treatment: twin(which.endsWith('1'), treatment),
    })),
  )

test('pairs are counted, and the difference has the interval and p-value of paired shares', () => {
  const found = compareTwins(pairs({ '11': 400, '10': 10, '01': 60, '00': 30 }), words)
  assert.deepEqual(found.pairs, { both: 400, controlOnly: 10, treatmentOnly: 60, neither: 30 })
  assert.equal(found.difference.estimate.toFixed(3), '0.100')
  assert.ok(found.difference.low > 0.06 && found.difference.high < 0.14, JSON.stringify(found.difference))
  assert.ok(found.p < 1e-8)
  assert.equal(found.result, 'better')
  assert.match(
    found.sentence,
    /^cautious wins: 10\.0 points more tasks succeed \(95 % CI 6\.\d–13\.\d, 500 pairs, p < 0\.000001\)$/,
  )
  const { even, odd } = found.kinds
  assert.deepEqual(
    [even, odd],
    [
      { both: 200, controlOnly: 5, treatmentOnly: 30, neither: 15 },
      { both: 200, controlOnly: 5, treatmentOnly: 30, neither: 15 },
    ],
  )
})

test('the verdict is worse, no difference or inconclusive as the interval lies', () => {
  const resultOf = (counts: Parameters<typeof pairs>[0]) => compareTwins(pairs(counts), words).result
  assert.equal(resultOf({ '11': 400, '10': 60, '01': 10, '00': 30 }), 'worse')
  assert.equal(resultOf({ '11': 5_000, '10': 3, '01': 3, '00': 0 }), 'no_difference_found')
  assert.equal(resultOf({ '11': 40, '10': 3, '01': 4, '00': 3 }), 'inconclusive')
  assert.equal(resultOf({ '11': 0, '10': 0, '01': 0, '00': 0 }), 'invalid')
})

test('a failed run makes the result invalid, with any finding', () => {
  const flaws = ['the journal dropped decisions before they were read']
  const found = compareTwins(pairs({ '11': 400, '10': 60, '01': 10, '00': 30 }), { ...words, flaws })
  assert.equal(found.result, 'invalid')
  assert.match(
    found.sentence,
    /^invalid: the journal dropped decisions .*; cautious: 10\.0 points fewer tasks/,
  )
})

test('means are over tasks, and differences over twins; a pair with an unknown value is left out', () => {
  const unknown: TwinPair = {
    task: 'x',
    kind: 'odd',
    control: twin(true, { attempts: NaN }),
    treatment: twin(true),
  }
  const { means, quantiles } = compareTwins(
    [
      ...pairs({ '11': 50, '10': 0, '01': 0, '00': 50 }, { attempts: 6, durations: [20, 30, 40, 50] }),
      unknown,
    ],
    words,
  )
  const [right, attempts, duration] = means
  assert.equal(right?.control.toFixed(4), ((100 * 1 + 100 * 0.75 + 2) / 202).toFixed(4))
  assert.deepEqual([attempts?.control, attempts?.treatment], [1, 1.5])
  assert.deepEqual(attempts?.difference, { estimate: 0.5, low: 0.5, high: 0.5 })
  assert.ok(Math.abs((duration?.difference.estimate ?? 0) - 1_000 / 101) < 1e-9)
  assert.deepEqual(
    quantiles.map(({ name, control, treatment }) => [name, control, treatment]),
    [
      ['p50', 20, 30],
      ['p95', 40, 50],
      ['p99', 40, 50],
    ],
  )
})

test('the report in Markdown says all of it, with fates by set and what the sets differ in', () => {
  const twins = pairs({ '11': 40, '10': 3, '01': 4, '00': 3 })
  const counts = { twice: 700, different: 0, once: 12 }
  const report: PairedReport = {
    ...compareTwins(twins, words),
    workload: 'orders',
    seed: 42,
    startedAt: '2026-01-01T00:00:00.000Z',
    ranMs: 12_300,
    planned: 60,
    faults: {
      names: ['flaky'],
      fates: { default: { masked: 7, surfaced: 2 }, cautious: { masked: 9 } },
      first: counts,
      later: counts,
      examples: [],
    },
    settings: [{ setting: 'retry.maxRetries', byArm: { default: '2', cautious: '4' } }],
    flaws: ['it was stopped after 50 of 60 pairs'],
    warnings: ['somebody else armed slow during the run: tasks of both arms may have met it'],
    twins,
  }
  const text = pairedMarkdown(report)
  for (const line of [
    '# cautious against default',
    '- Not sound: it was stopped after 50 of 60 pairs.',
    '- Warning: somebody else armed slow during the run: tasks of both arms may have met it.',
    '50 of 60 tasks of the workload orders, each played once under either policy set, with seed 42, in 12s.',
    '| all | 40 | 3 | 4 | 3 | 50 |',
    '| tasks that succeed | 86.0 % | 88.0 % | +2.0 points | ',
    '| default | 7 | 0 | 2 | 0 | 0 | 9 |',
    '| cautious | 9 | 0 | 0 | 0 | 0 | 9 |',
    '| first tries | 700 | 0 | 12 |',
    '| retry.maxRetries | 2 | 4 |',
  ])
    assert.ok(text.includes(line), `${line}\n${text}`)
})
