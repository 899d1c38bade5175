import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import {
  differenceSequence,
  sequenceHalfWidth,
} from '../../../src/experiments/statistics/confidence-sequence.ts'
import {
  binomialTails,
  normalQuantile,
  normalTails,
} from '../../../src/experiments/statistics/distributions.ts'
import { unitsForMeans, unitsForProportions } from '../../../src/experiments/statistics/power.ts'
import type { Metric } from '../../../src/experiments/statistics/sentences.ts'
import { sampleRatioSequence } from '../../../src/experiments/statistics/significance.ts'
import {
  ratioOf,
  squaredError,
  type UnitEstimate,
  UnitSums,
  welchInterval,
} from '../../../src/experiments/statistics/unit-estimates.ts'
import { verdictOf, type VerdictPlan } from '../../../src/experiments/statistics/verdict.ts'
import { seeded } from '../../support/random.ts'
import { FAILURE_SHARE, normal, type Random, share, successes, task } from './simulated.ts'

const ALPHA = 0.05
const LOOKS = 50
const RUNS = 1_000

/** The numerator and the denominator that one unit adds. */
type Draw = (random: Random) => readonly [number, number]

interface Design {
  /** In both arms together, at the last look. */
  readonly units: number
  readonly treatmentShare: number
  readonly control: Draw
  readonly treatment: Draw
  readonly metric: Metric
  /** As `SequenceOptions.reach`. */
  readonly reach: number
}

const failures: Metric = { name: 'failed_calls', unit: 'points', better: 'lower', words: 'calls fail' }
const succeeded: Metric = { name: 'task_success', unit: 'points', better: 'higher', words: 'tasks succeed' }
const taken: Metric = { name: 'task_duration', unit: 'ms', better: 'lower', words: 'tasks take' }

/** Assigns unit by unit, and calls `look` with both arms after every 50th unit. */
function play(
  design: Design,
  random: Random,
  look: (control: UnitEstimate, treatment: UnitEstimate, look: number) => boolean,
): void {
  const control = new UnitSums()
  const treatment = new UnitSums()
  for (let at = 1; at <= LOOKS; at++) {
    for (let unit = 0; unit < design.units / LOOKS; unit++) {
      const isTreated = random() < design.treatmentShare
      const [numerator, denominator] = isTreated ? design.treatment(random) : design.control(random)
      ;(isTreated ? treatment : control).add(numerator, denominator)
    }
    if (control.units < 2 || treatment.units < 2) continue
    if (look(control.estimate(), treatment.estimate(), at)) return
  }
}

const plannedOf = ({ units, treatmentShare }: Design) => ({
  control: units * (1 - treatmentShare),
  treatment: units * treatmentShare,
})

const sequenceOf = (design: Design, control: UnitEstimate, treatment: UnitEstimate) =>
  differenceSequence(control, treatment, plannedOf(design), { alpha: ALPHA, reach: design.reach })

/** How often equal arms count as different: by the verdict, by a z-test at each look, and by the plain sequence. */
function falsePositives(design: Design, seed: number) {
  const random = seeded(seed)
  const plan: VerdictPlan = {
    metric: design.metric,
    minimumEffect: 0,
    control: 'steady',
    treatment: 'cautious',
    unitWords: 'tasks',
    minimumUnits: 20,
    alpha: ALPHA,
    plannedUnits: design.units,
  }
  const counts = { verdict: 0, zTest: 0, plainSequence: 0, invalid: 0 }
  for (let run = 0; run < RUNS; run++) {
    const found = { verdict: false, zTest: false, plainSequence: false, invalid: false }
    let ended = false
    play(design, random, (control, treatment) => {
      const difference = sequenceOf(design, control, treatment)
      const units = { control: control.units, treatment: treatment.units }
      const sampleRatioP = sampleRatioSequence(
        [units.control, units.treatment],
        [1 - design.treatmentShare, design.treatmentShare],
      )
      if (!ended) {
        const verdict = verdictOf(plan, {
          units,
          assigned: units,
          difference,
          sampleRatioP,
          maxDurationReached: false,
        })
        ended = verdict.ends
        found.verdict ||= verdict.result === 'better' || verdict.result === 'worse'
        found.invalid ||= verdict.result === 'invalid'
      }
      if (Math.min(units.control, units.treatment) < plan.minimumUnits) return false
      const { estimate } = difference
      const now = squaredError(control) + squaredError(treatment)
      if (now === 0) return false
      const planned = plannedOf(design)
      const atEnd = control.variance / planned.control + treatment.variance / planned.treatment
      found.zTest ||= 2 * normalTails(-Math.abs(estimate) / Math.sqrt(now)).lower < ALPHA
      found.plainSequence ||= Math.abs(estimate) > sequenceHalfWidth(now, atEnd / now, ALPHA)
      return false
    })
    for (const key of ['verdict', 'zTest', 'plainSequence', 'invalid'] as const) {
      if (found[key]) counts[key]++
    }
  }
  return {
    verdict: counts.verdict / RUNS,
    zTest: counts.zTest / RUNS,
    plainSequence: counts.plainSequence / RUNS,
    invalid: counts.invalid / RUNS,
  }
}

const ofTasks = (treatmentScale: number): Design => ({
  units: 2_000,
  treatmentShare: 0.5,
  control: (random) => task(random),
  treatment: (random) => task(random, treatmentScale),
  metric: failures,
  reach: 1,
})

const ofSuccesses = (control: number, treatment: number, units: number, treatmentShare = 0.5): Design => ({
  units,
  treatmentShare,
  control: (random) => [random() < control ? 1 : 0, 1],
  treatment: (random) => [random() < treatment ? 1 : 0, 1],
  metric: succeeded,
  reach: 1,
})

const duration: Draw = (random) => [1_000 * Math.exp(1.5 * normal(random)), 1]

function report(t: TestContext, rates: Readonly<Record<string, number>>): void {
  for (const [name, rate] of Object.entries(rates)) t.diagnostic(`${name}: ${rate.toFixed(4)}`)
}

test('equal arms of correlated calls differ by 50 looks in at most 5 % of runs, and by a z-test in many', (t) => {
  const rates = falsePositives(ofTasks(1), 1)
  report(t, rates)
  assert.ok(rates.verdict <= 0.05)
  assert.ok(rates.zTest > 0.15)
  assert.ok(rates.invalid <= 0.002)
})

test('equal arms with a tenth of the tasks in one arm and rare failures rarely differ, where the plain sequence fails', (t) => {
  const rates = falsePositives(ofSuccesses(0.99, 0.99, 4_000, 0.1), 2)
  report(t, rates)
  assert.ok(rates.verdict <= 0.05)
  assert.ok(rates.plainSequence > 0.15)
})

test('equal arms of long-tailed durations with a tenth of the tasks in one arm rarely differ', (t) => {
  const design: Design = {
    units: 4_000,
    treatmentShare: 0.1,
    control: duration,
    treatment: duration,
    metric: taken,
    reach: 0,
  }
  const rates = falsePositives(design, 3)
  report(t, rates)
  assert.ok(rates.verdict <= 0.05)
  assert.ok(rates.plainSequence > 0.05)
})

test('a sequence that is looked at 50 times misses a true difference of arms in 5 % of runs at most', (t) => {
  const random = seeded(4)
  const truth = -0.3 * FAILURE_SHARE
  const missed = share(RUNS, () => {
    let misses = false
    const design = ofTasks(0.7)
    play(design, random, (control, treatment) => {
      const { low, high } = sequenceOf(design, control, treatment)
      misses ||= truth < low || truth > high
      return misses
    })
    return misses
  })
  report(t, { missed })
  assert.ok(missed <= 0.05)
})

test('arms that grow at changing shares do not deceive the sequence', (t) => {
  const random = seeded(5)
  // A ramp: first a hundredth of the tasks, last nine tenths.
  const missed = share(RUNS, () => {
    const control = new UnitSums()
    const treatment = new UnitSums()
    for (let unit = 1; unit <= 2_000; unit++) {
      const isTreated = random() < 0.01 + (0.89 * unit) / 2_000
      const [numerator, denominator] = task(random)
      ;(isTreated ? treatment : control).add(numerator, denominator)
      if (unit % 40 > 0) continue
      const planned = { control: 1_000, treatment: 1_000 }
      const options = { alpha: ALPHA, reach: 1 }
      const { low, high } = differenceSequence(control.estimate(), treatment.estimate(), planned, options)
      if (low > 0 || high < 0) return true
    }
    return false
  })
  report(t, { missed })
  assert.ok(missed <= 0.05)
})

const wanted = { alpha: ALPHA, power: 0.8 }

/** Returns the probability of each number of successes. */
function binomial(units: number, probability: number): readonly number[] {
  const upTo = (count: number) => binomialTails(count, units, probability).lower
  return Array.from({ length: units + 1 }, (_, count) => upTo(count) - upTo(count - 1))
}

test('as many tasks as the power function says find a difference of 5 points with power 0.8, over all outcomes', (t) => {
  const { control, treatment } = unitsForProportions(0.8, 0.85, wanted)
  const critical = normalQuantile(1 - ALPHA / 2)
  let power = 0
  const ofTreatment = binomial(treatment, 0.85)
  for (const [c, ofControl] of binomial(control, 0.8).entries()) {
    for (let d = 0; d <= treatment; d++) {
      const pooled = (c + d) / (control + treatment)
      const error = Math.sqrt(pooled * (1 - pooled) * (1 / control + 1 / treatment))
      if (Math.abs(d / treatment - c / control) > critical * error) power += ofControl * ofTreatment[d]!
    }
  }
  report(t, { unitsPerArm: control, power })
  assert.ok(power >= 0.8 && power < 0.81)
})

test('as many tasks as the power functions say find a difference of calls in tasks, by the variance of a unit and by the design effect', (t) => {
  const random = seeded(8)
  const worse = (FAILURE_SHARE + 0.05) / FAILURE_SHARE
  const pilot = (scale: number) =>
    ratioOf(Array.from({ length: 100_000 }, () => task(random, scale))).variance
  const units = unitsForMeans(0.05, { control: pilot(1), treatment: pilot(worse) }, wanted)
  const arm = (count: number, draw: Draw) => ratioOf(Array.from({ length: count }, () => draw(random)))
  const found = (control: UnitEstimate, treatment: UnitEstimate) => {
    const { low, high } = welchInterval(control, treatment, ALPHA)
    return low > 0 || high < 0
  }
  const byVariance = share(2_000, () =>
    found(
      arm(units.control, (one) => task(one)),
      arm(units.treatment, (one) => task(one, worse)),
    ),
  )
  // Five calls in each task; a task is bad or good as a whole.
  const fixed =
    (scale: number): Draw =>
    (one) => [successes(one, 5, (one() < 0.2 ? 0.4 : 0.02) * scale), 5]
  const between = 0.2 * 0.8 * (0.4 - 0.02) ** 2
  const shares = [1, worse].map((scale) => scale * FAILURE_SHARE)
  const correlation = (between * (1 + worse ** 2)) / shares.reduce((sum, one) => sum + one * (1 - one), 0)
  const calls = unitsForProportions(shares[0]!, shares[1]!, {
    ...wanted,
    designEffect: 1 + 4 * correlation,
  })
  const tasks = Math.ceil(calls.control / 5)
  const byDesignEffect = share(2_000, () => found(arm(tasks, fixed(1)), arm(tasks, fixed(worse))))
  report(t, { unitsPerArm: units.control, byVariance, tasksPerArm: tasks, byDesignEffect })
  assert.ok(byVariance >= 0.8)
  assert.ok(byDesignEffect >= 0.8)
})

test('a sequence needs 1.5 to 2 times as many tasks for the same power, and half of its runs end before that', (t) => {
  const random = seeded(9)
  const once = unitsForProportions(0.8, 0.85, wanted)
  const atOnce = once.control + once.treatment
  const design = ofSuccesses(0.8, 0.85, 2 * atOnce)
  const ends: number[] = []
  for (let run = 0; run < RUNS; run++) {
    let end = Infinity
    play(design, random, (control, treatment, look) => {
      const { low, high } = sequenceOf(design, control, treatment)
      if (low <= 0 && high >= 0) return false
      end = (look * design.units) / LOOKS
      return true
    })
    ends.push(end)
  }
  ends.sort((one, other) => one - other)
  const needed = ends[0.8 * RUNS - 1]! / atOnce
  const median = ends[0.5 * RUNS]! / atOnce
  report(t, { needed, median })
  assert.ok(needed > 1.5 && needed < 2)
  assert.ok(median < needed)
})
