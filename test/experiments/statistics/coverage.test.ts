import assert from 'node:assert/strict'
import { test } from 'node:test'
import { binomialTails, normalQuantile } from '../../../src/experiments/statistics/distributions.ts'
import { type Pair, pairedInterval } from '../../../src/experiments/statistics/pairs.ts'
import {
  clusteredDifferenceInterval,
  clusteredInterval,
  newcombeInterval,
  newcombePairedInterval,
  wilsonInterval,
} from '../../../src/experiments/statistics/proportions.ts'
import {
  quantileDifferences,
  type UnitDurations,
} from '../../../src/experiments/statistics/quantile-bootstrap.ts'
import {
  type Interval,
  meanOf,
  ratioOf,
  studentInterval,
  welchInterval,
} from '../../../src/experiments/statistics/unit-estimates.ts'
import { seeded } from '../../support/random.ts'
import { callsOfTask, FAILURE_SHARE, normal, type Random, share, successes, task } from './simulated.ts'

const ALPHA = 0.05

const holds = ({ low, high }: Interval, truth: number) => low <= truth && truth <= high

/**
 * Checks how often a 95 % interval holds the truth. `play` draws an experiment and returns whether its interval does.
 */
function covers(name: string, runs: number, play: (random: Random) => boolean): void {
  test(`intervals of 95 % cover 94 % at least: ${name}`, (t) => {
    const random = seeded(20_26)
    const coverage = share(runs, () => play(random))
    t.diagnostic(`coverage: ${coverage.toFixed(4)} of ${runs}`)
    assert.ok(coverage >= 0.94, `${coverage}`)
  })
}

for (const units of [10, 30, 100]) {
  covers(`Wilson, ${units} units, any share`, 10_000, (random) => {
    const truth = random()
    return holds(wilsonInterval({ successes: successes(random, units, truth), units }, ALPHA), truth)
  })
}

test('the interval of Wilson covers 95 % on average over all shares, and 91 % at the worst', () => {
  const units = 100
  const ends = Array.from({ length: units + 1 }, (_, count) =>
    wilsonInterval({ successes: count, units }, ALPHA),
  )
  const coverages = Array.from({ length: 193 }, (_, step) => {
    const truth = 0.02 + step * 0.005
    const inside = ends.flatMap((interval, count) => (holds(interval, truth) ? [count] : []))
    const upTo = (count: number) => binomialTails(count, units, truth).lower
    return upTo(inside.at(-1)!) - upTo(inside[0]! - 1)
  })
  const mean = coverages.reduce((sum, coverage) => sum + coverage, 0) / coverages.length
  assert.ok(mean >= 0.95, `${mean}`)
  assert.ok(Math.min(...coverages) > 0.91, `${Math.min(...coverages)}`)
})

for (const [control, treatment] of [
  [20, 20],
  [30, 60],
  [100, 900],
] as const) {
  covers(`Newcombe, ${control} and ${treatment} units, any shares`, 10_000, (random) => {
    const [c, d] = [random(), random()]
    const interval = newcombeInterval(
      { successes: successes(random, control, c), units: control },
      { successes: successes(random, treatment, d), units: treatment },
      ALPHA,
    )
    return holds(interval, d - c)
  })
}

for (const units of [20, 50, 200]) {
  covers(`Newcombe for pairs, ${units} pairs of easy and hard tasks`, 10_000, (random) => {
    const easy = random()
    const [easyControl, easyTreatment, hardControl, hardTreatment] = [random(), random(), random(), random()]
    const counts = { both: 0, controlOnly: 0, treatmentOnly: 0, neither: 0 }
    for (let pair = 0; pair < units; pair++) {
      const isEasy = random() < easy
      const control = random() < (isEasy ? easyControl : hardControl)
      const treatment = random() < (isEasy ? easyTreatment : hardTreatment)
      counts[control ? (treatment ? 'both' : 'controlOnly') : treatment ? 'treatmentOnly' : 'neither']++
    }
    const truth = easy * (easyTreatment - easyControl) + (1 - easy) * (hardTreatment - hardControl)
    return holds(newcombePairedInterval(counts, ALPHA), truth)
  })
}

const tasks = (random: Random, count: number, scale = 1) =>
  ratioOf(Array.from({ length: count }, () => task(random, scale)))

// With fewer units, or arms of other sizes, a few tasks with many failures decide: see `clusteredInterval`.
covers('delta method, 500 tasks', 4_000, (random) =>
  holds(studentInterval(tasks(random, 500), ALPHA), FAILURE_SHARE),
)
covers('delta method, difference of 200 and 200 tasks', 6_000, (random) =>
  holds(welchInterval(tasks(random, 200), tasks(random, 200, 0.8), ALPHA), -0.2 * FAILURE_SHARE),
)
covers('share of calls, 250 tasks', 8_000, (random) =>
  holds(clusteredInterval(tasks(random, 250), ALPHA), FAILURE_SHARE),
)
for (const [control, treatment] of [
  [100, 100],
  [1_350, 150],
  [150, 1_350],
] as const) {
  covers(`difference of shares of calls, ${control} and ${treatment} tasks`, 5_000, (random) => {
    const [c, d] = [tasks(random, control), tasks(random, treatment, 0.8)]
    return holds(clusteredDifferenceInterval(c, d, ALPHA), -0.2 * FAILURE_SHARE)
  })
}

const lognormal = (random: Random, mean: number, deviation: number) =>
  Math.exp(mean + deviation * normal(random))

covers('Welch, skewed means of 50 and 150 units', 4_000, (random) => {
  const arm = (count: number, mean: number) =>
    meanOf(Array.from({ length: count }, () => lognormal(random, mean, 0.7)))
  const truth = Math.exp(0.3 + 0.7 ** 2 / 2) - Math.exp(0.7 ** 2 / 2)
  return holds(welchInterval(arm(50, 0), arm(150, 0.3), ALPHA), truth)
})

covers('paired t, 30 pairs', 10_000, (random) => {
  const pairs: Pair[] = Array.from({ length: 30 }, () => {
    const both = 0.5 * normal(random)
    return [lognormal(random, both, 0.5), lognormal(random, 0.2 + both, 0.5)]
  })
  return holds(pairedInterval(pairs, ALPHA), Math.exp(0.45) - Math.exp(0.25))
})

/** Slow or fast tasks, by a lognormal factor per task; calls vary too. */
const durations = (random: Random, count: number, mean: number): UnitDurations =>
  Array.from({ length: count }, () => {
    const slowness = 0.5 * normal(random)
    return Array.from({ length: Math.min(64, callsOfTask(random)) }, () =>
      lognormal(random, mean + slowness, 1),
    )
  })

const QUANTILES = [0.5, 0.95, 0.99]

for (const [control, treatment, runs] of [
  [250, 250, 1_000],
  [250, 500, 500],
] as const) {
  test(`intervals of 95 % of p50, p95 and p99 of durations cover 94 % at least, by the bootstrap over ${control} and ${treatment} tasks`, (t) => {
    const random = seeded(11)
    const truths = QUANTILES.map((quantile) => {
      const of = (mean: number) => Math.exp(mean + Math.sqrt(1.25) * normalQuantile(quantile))
      return of(4.3) - of(4)
    })
    const held = QUANTILES.map(() => 0)
    for (let run = 0; run < runs; run++) {
      const differences = quantileDifferences(
        durations(random, control, 4),
        durations(random, treatment, 4.3),
        QUANTILES,
        { alpha: ALPHA, resamples: 400, random },
      )
      for (const [index, difference] of differences.entries()) {
        if (holds(difference, truths[index]!)) held[index]!++
        assert.ok(Number.isFinite(difference.low + difference.high))
      }
    }
    for (const [index, count] of held.entries()) {
      t.diagnostic(`p${QUANTILES[index]! * 100}: ${(count / runs).toFixed(4)} of ${runs}`)
      assert.ok(count / runs >= 0.94, `p${QUANTILES[index]! * 100}: ${count / runs}`)
    }
  })
}
