import { test } from 'node:test'
import {
  type Distribution,
  normalQuantile,
  sample,
  schema,
} from '../../../../src/chaos/faults/distributions.ts'
import { createKeyedRandom } from '../../../../src/mesh/keyed-random.ts'

import assert from 'node:assert/strict'

const DRAWS = 100_000

/** Delays of 100,000 calls, shortest first. */
function delays(input: object): number[] {
  const distribution = schema.parse(input)
  const random = createKeyedRandom(42)
  const samples = Array.from({ length: DRAWS }, (_, call) =>
    sample(distribution, (purpose) => random(`call ${call}`, purpose)),
  )
  return samples.sort((one, other) => one - other)
}

const at = (sorted: number[], share: number) => sorted[Math.floor(share * sorted.length)] ?? NaN

function isNear(actual: number, expected: number, what: string): void {
  assert.ok(Math.abs(actual / expected - 1) < 0.05, `${what} is ${actual}, expected ${expected}`)
}

const expectations: [object, { median: number; p99: number }][] = [
  [
    { kind: 'fixed', delay: '700ms' },
    { median: 700, p99: 700 },
  ],
  [
    { kind: 'uniform', min: '100ms', max: '300ms' },
    { median: 200, p99: 298 },
  ],
  [
    { kind: 'normal', mean: '1s', sd: '200ms' },
    { median: 1000, p99: 1465.3 },
  ],
  [
    { kind: 'lognormal', median: '400ms', p99: '4s' },
    { median: 400, p99: 4000 },
  ],
  [
    { kind: 'pareto', scale: '100ms', alpha: 2 },
    { median: 100 * 2 ** 0.5, p99: 1000 },
  ],
  [
    { kind: 'empirical', values: [10, 20, 30, 40, '1s'] },
    { median: 30, p99: 1000 },
  ],
]

/** The share of delays below a quantile must lie in its 99.9 % interval. */
const continuous: ReadonlySet<string> = new Set(['uniform', 'normal', 'lognormal', 'pareto'])

for (const [input, { median, p99 }] of expectations) {
  test(`${JSON.stringify(input)} has its median and its p99`, () => {
    const sorted = delays(input)
    isNear(at(sorted, 0.5), median, 'median')
    isNear(at(sorted, 0.99), p99, 'p99')
    if (!continuous.has((input as { kind: string }).kind)) return
    for (const [share, delay] of [
      [0.5, median],
      [0.99, p99],
    ] as const) {
      const below = sorted.filter((one) => one < delay).length
      const sd = Math.sqrt(DRAWS * share * (1 - share))
      assert.ok(Math.abs(below - share * DRAWS) < 3.29 * sd, `${below} below ${delay} ms`)
    }
  })
}

test('no delay exceeds the cap, and longer draws become the cap', () => {
  const sorted = delays({ kind: 'lognormal', median: '400ms', p99: '4s', cap: '4s' })
  assert.equal(sorted.at(-1), 4000)
  const capped = sorted.filter((ms) => ms === 4000).length
  assert.ok(capped > 0.008 * DRAWS && capped < 0.012 * DRAWS, `${capped} were capped`)
})

test('a distribution without an end is capped at 10 minutes unless told otherwise', () => {
  const heavy = schema.parse({ kind: 'pareto', scale: '1s', alpha: 0.1 })
  assert.equal(
    sample(heavy, () => 0.999),
    600_000,
  )
  const long: Distribution = schema.parse({ kind: 'fixed', delay: '1h' })
  assert.equal(
    sample(long, () => 0.999),
    3_600_000,
  )
})

test('no delay is negative', () => {
  assert.equal(delays({ kind: 'normal', mean: '10ms', sd: '1s' })[0], 0)
})

test('each kind uses exactly one draw, and every draw in [0, 1) gives a finite delay', () => {
  for (const [input] of expectations) {
    for (const u of [0, 0.5, 1 - 2 ** -53]) {
      const purposes: string[] = []
      const ms = sample(schema.parse(input), (purpose) => {
        purposes.push(purpose)
        return u
      })
      assert.ok(Number.isFinite(ms) && ms >= 0, `${JSON.stringify(input)} gives ${ms} at ${u}`)
      assert.ok(purposes.every((purpose) => purpose === 'delay') && purposes.length === 1)
    }
  }
})

test('the quantiles of the normal distribution match published tables', () => {
  const table = [
    [0.001, -3.090232306],
    [0.024, -1.977368428],
    [0.5, 0],
    [0.84134474607, 1],
    [0.975, 1.959963985],
    [0.99, 2.326347874],
  ] as const
  for (const [p, expected] of table)
    assert.ok(Math.abs(normalQuantile(p) - expected) < 1e-8, `quantile of ${p}: ${normalQuantile(p)}`)
})

test('contradictory settings are refused', () => {
  for (const input of [
    { kind: 'uniform', min: '2s', max: '1s' },
    { kind: 'lognormal', median: '2s', p99: '1s' },
    { kind: 'fixed', delay: '2s', cap: '1s' },
    { kind: 'pareto', scale: '1s', alpha: 0 },
    { kind: 'empirical', values: [] },
    { kind: 'gauss', mean: 1 },
    { kind: 'fixed', delay: 1, jitter: 2 },
  ])
    assert.equal(schema.safeParse(input).success, false, JSON.stringify(input))
})
