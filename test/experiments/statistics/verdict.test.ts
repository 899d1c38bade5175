import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Metric } from '../../../src/experiments/statistics/sentences.ts'
import type { Interval } from '../../../src/experiments/statistics/unit-estimates.ts'
import {
  type Guardrail,
  type Verdict,
  verdictOf,
  type VerdictPlan,
  type VerdictState,
} from '../../../src/experiments/statistics/verdict.ts'
import { seeded } from '../../support/random.ts'

const succeeded: Metric = { name: 'task_success', unit: 'points', better: 'higher', words: 'tasks succeed' }
const failed: Metric = { name: 'failed_calls', unit: 'points', better: 'lower', words: 'calls fail' }
const taken: Metric = { name: 'call_duration', unit: 'ms', better: 'lower', words: 'calls take' }
const calls: Metric = { name: 'calls', unit: 'count', better: 'lower', words: 'calls per task' }

const plan: VerdictPlan = {
  metric: succeeded,
  minimumEffect: 0.02,
  control: 'steady',
  treatment: 'cautious',
  unitWords: 'tasks',
  minimumUnits: 200,
  minimumUnitsForHarm: 50,
  alpha: 0.05,
  plannedUnits: 10_000,
}

const between = (low: number, high: number): Interval => ({ estimate: (low + high) / 2, low, high })

const state: VerdictState = {
  units: { control: 412, treatment: 400 },
  assigned: { control: 430, treatment: 415 },
  difference: between(-0.03, 0.05),
  sampleRatioP: 0.4,
  maxDurationReached: false,
}

const slower: Guardrail = { metric: taken, margin: 50, difference: between(80, 160), alpha: 0.01 }

interface Case {
  readonly name: string
  readonly plan?: Partial<VerdictPlan>
  readonly state?: Partial<VerdictState>
  readonly is: Pick<Verdict, 'result' | 'ends' | 'harm' | 'sentence'>
}

const few = { control: 60, treatment: 70 }
const fewer = { control: 49, treatment: 70 }

const cases: readonly Case[] = [
  {
    name: 'a sequence above 0 is better where higher is better',
    state: { difference: between(0.022, 0.06) },
    is: {
      result: 'better',
      ends: true,
      harm: false,
      sentence: 'cautious wins: 4.1 points more tasks succeed (95 % CI 2.2–6.0, 812 tasks)',
    },
  },
  {
    name: 'a sequence below 0 is worse where higher is better, and harm',
    state: { difference: between(-0.06, -0.022) },
    is: {
      result: 'worse',
      ends: true,
      harm: true,
      sentence: 'cautious loses: 4.1 points fewer tasks succeed (95 % CI 2.2–6.0, 812 tasks)',
    },
  },
  {
    name: 'a sequence below 0 is better where lower is better',
    plan: { metric: failed },
    state: { difference: between(-0.06, -0.022) },
    is: {
      result: 'better',
      ends: true,
      harm: false,
      sentence: 'cautious wins: 4.1 points fewer calls fail (95 % CI 2.2–6.0, 812 tasks)',
    },
  },
  {
    name: 'a sequence above 0 is worse where lower is better, and harm',
    plan: { metric: taken, minimumEffect: 20 },
    state: { difference: between(80, 160) },
    is: {
      result: 'worse',
      ends: true,
      harm: true,
      sentence: 'cautious loses: calls take 120 ms longer (95 % CI 80–160, 812 tasks)',
    },
  },
  {
    name: 'less time is said as such',
    plan: { metric: taken, minimumEffect: 20 },
    state: { difference: between(-16.1, -8.3) },
    is: {
      result: 'better',
      ends: true,
      harm: false,
      sentence:
        'cautious wins: calls take 12.2 ms less (95 % CI 8.3–16.1, 812 tasks), less than the 20 ms that would matter',
    },
  },
  {
    name: 'more of what is counted is said as such',
    plan: { metric: calls, minimumEffect: 0.5, alpha: 0.001 },
    state: { difference: between(0.8, 1.6) },
    is: {
      result: 'worse',
      ends: true,
      harm: true,
      sentence: 'cautious loses: 1.20 more calls per task (99.9 % CI 0.80–1.60, 812 tasks)',
    },
  },
  {
    name: 'fewer of what is counted are said as such',
    plan: { metric: calls, minimumEffect: 0.5 },
    state: { difference: between(-30, -10) },
    is: {
      result: 'better',
      ends: true,
      harm: false,
      sentence: 'cautious wins: 20 fewer calls per task (95 % CI 10–30, 812 tasks)',
    },
  },
  {
    name: 'one point is in the singular',
    plan: { minimumEffect: 0.01 },
    state: { difference: between(-0.19, 0.21), maxDurationReached: true },
    is: {
      result: 'inconclusive',
      ends: true,
      harm: false,
      sentence: 'inconclusive: with cautious 1 point more tasks succeed (95 % CI −19 to 21, 812 tasks)',
    },
  },
  {
    name: 'worse by less than what matters is worse, but no harm',
    state: { difference: between(-0.015, -0.005) },
    is: {
      result: 'worse',
      ends: true,
      harm: false,
      sentence:
        'cautious loses: 1.00 points fewer tasks succeed (95 % CI 0.50–1.50, 812 tasks), less than the 2 points that would matter',
    },
  },
  {
    name: 'better waits for the minimum of units',
    state: { units: few, difference: between(0.1, 0.5) },
    is: {
      result: 'inconclusive',
      ends: false,
      harm: false,
      sentence: 'not decided yet: 60 tasks in steady and 70 in cautious, each needs 200',
    },
  },
  {
    name: 'no difference waits for the minimum of units',
    state: { units: few, difference: between(-0.01, 0.01) },
    is: {
      result: 'inconclusive',
      ends: false,
      harm: false,
      sentence: 'not decided yet: 60 tasks in steady and 70 in cautious, each needs 200',
    },
  },
  {
    name: 'worse waits for the minimum of harm only',
    state: { units: few, difference: between(-0.5, -0.1) },
    is: {
      result: 'worse',
      ends: true,
      harm: true,
      sentence: 'cautious loses: 30 points fewer tasks succeed (95 % CI 10–50, 130 tasks)',
    },
  },
  {
    name: 'worse waits for the minimum of harm',
    state: { units: fewer, difference: between(-0.5, -0.1), guardrails: [slower] },
    is: {
      result: 'inconclusive',
      ends: false,
      harm: false,
      sentence: 'not decided yet: 49 tasks in steady and 70 in cautious, each needs 200',
    },
  },
  {
    name: 'without a minimum of harm, worse waits for that of everything',
    plan: { minimumUnitsForHarm: 200 },
    state: { units: few, difference: between(-0.5, -0.1) },
    is: {
      result: 'inconclusive',
      ends: false,
      harm: false,
      sentence: 'not decided yet: 60 tasks in steady and 70 in cautious, each needs 200',
    },
  },
  {
    name: 'too few units at the end are invalid',
    state: { units: few, difference: between(0.1, 0.5), maxDurationReached: true },
    is: {
      result: 'invalid',
      ends: true,
      harm: false,
      sentence: 'invalid: 60 tasks in steady and 70 in cautious, each needs 200',
    },
  },
  {
    name: 'a sequence within what matters finds no difference, and ends early',
    state: { difference: between(-0.012, 0.018) },
    is: {
      result: 'no_difference_found',
      ends: true,
      harm: false,
      sentence:
        'no difference found: with cautious 0.3 points more tasks succeed (95 % CI −1.2 to 1.8, 812 tasks); 2 points would matter',
    },
  },
  {
    name: 'at the end a sequence around 0 that reaches beyond what matters excludes nothing, however narrow it is',
    state: { difference: between(-0.03, 0.008), maxDurationReached: true },
    is: {
      result: 'inconclusive',
      ends: true,
      harm: false,
      sentence: 'inconclusive: with cautious 1.1 points fewer tasks succeed (95 % CI −0.8 to 3.0, 812 tasks)',
    },
  },
  {
    name: 'before the end it does not',
    state: { difference: between(-0.03, 0.008) },
    is: {
      result: 'inconclusive',
      ends: false,
      harm: false,
      sentence:
        'not decided yet: with cautious 1.1 points fewer tasks succeed (95 % CI −0.8 to 3.0, 812 tasks)',
    },
  },
  {
    name: 'a wide sequence around 0 is inconclusive at the longest time',
    state: { maxDurationReached: true },
    is: {
      result: 'inconclusive',
      ends: true,
      harm: false,
      sentence: 'inconclusive: with cautious 1.0 points more tasks succeed (95 % CI −3.0 to 5.0, 812 tasks)',
    },
  },
  {
    name: 'a wide sequence around 0 is inconclusive with all units that were planned',
    state: { units: { control: 5_000, treatment: 5_000 } },
    is: {
      result: 'inconclusive',
      ends: true,
      harm: false,
      sentence:
        'inconclusive: with cautious 1.0 points more tasks succeed (95 % CI −3.0 to 5.0, 10000 tasks)',
    },
  },
  {
    name: 'a sequence of which nothing is known decides nothing',
    state: { difference: { estimate: 0, low: -Infinity, high: Infinity } },
    is: {
      result: 'inconclusive',
      ends: false,
      harm: false,
      sentence: 'not decided yet: too little is known of task_success',
    },
  },
  {
    name: 'units of which the metric is not known do not count towards the minimum, nor in the sentence',
    state: { difference: between(0.1, 0.5), measured: { control: 90, treatment: 80 } },
    is: {
      result: 'inconclusive',
      ends: false,
      harm: false,
      sentence: 'not decided yet: 90 tasks in steady and 80 in cautious, each needs 200',
    },
  },
  {
    name: 'a loss of which it is not known that it matters is no harm',
    state: { difference: between(-0.039, -0.001) },
    is: {
      result: 'worse',
      ends: true,
      harm: false,
      sentence: 'cautious loses: 2.0 points fewer tasks succeed (95 % CI 0.1–3.9, 812 tasks)',
    },
  },
  {
    name: 'units that are not those assigned are invalid at once, whatever the difference',
    state: { difference: between(0.022, 0.06), sampleRatioP: 0.00031 },
    is: {
      result: 'invalid',
      ends: true,
      harm: false,
      sentence:
        'invalid: units were not assigned in the planned shares: 430 tasks in steady and 415 in cautious (p = 0.0003)',
    },
  },
  {
    name: 'very small p-values are bounded',
    state: { sampleRatioP: 1e-9 },
    is: {
      result: 'invalid',
      ends: true,
      harm: false,
      sentence:
        'invalid: units were not assigned in the planned shares: 430 tasks in steady and 415 in cautious (p < 0.000001)',
    },
  },
  {
    name: 'unsound units are invalid, but may become sound',
    state: { difference: between(0.022, 0.06), unsound: 'one agent has 80 % of all tasks' },
    is: { result: 'invalid', ends: false, harm: false, sentence: 'invalid: one agent has 80 % of all tasks' },
  },
  {
    name: 'unsound units at the end are invalid for good',
    state: { unsound: 'one agent has 80 % of all tasks', maxDurationReached: true },
    is: { result: 'invalid', ends: true, harm: false, sentence: 'invalid: one agent has 80 % of all tasks' },
  },
  {
    name: 'harm ends also what is invalid',
    state: { unsound: 'calls name no task', guardrails: [slower] },
    is: { result: 'invalid', ends: true, harm: true, sentence: 'invalid: calls name no task' },
  },
  {
    name: 'a guardrail beyond what is tolerated is harm, from its smaller minimum on',
    state: { units: few, guardrails: [slower] },
    is: {
      result: 'worse',
      ends: true,
      harm: true,
      sentence: 'cautious does harm: calls take 120 ms longer (99 % CI 80–160, 130 tasks)',
    },
  },
  {
    name: 'what is gained meanwhile is said with the harm',
    state: { guardrails: [slower], difference: between(0.022, 0.06) },
    is: {
      result: 'worse',
      ends: true,
      harm: true,
      sentence:
        'cautious does harm: calls take 120 ms longer (99 % CI 80–160, 812 tasks), though 4.1 points more tasks succeed (95 % CI 2.2–6.0, 812 tasks)',
    },
  },
  {
    name: 'a guardrail that is worse within what is tolerated is no harm, nor is one that is better',
    state: {
      guardrails: [
        { ...slower, margin: 100 },
        { ...slower, difference: between(-500, -400) },
      ],
    },
    is: {
      result: 'inconclusive',
      ends: false,
      harm: false,
      sentence:
        'not decided yet: with cautious 1.0 points more tasks succeed (95 % CI −3.0 to 5.0, 812 tasks)',
    },
  },
]

for (const { name, plan: planned, state: seen, is } of cases) {
  test(`the verdict of an experiment: ${name}`, () => {
    const now = { ...state, ...seen }
    const { difference, low, high, units, ...decided } = verdictOf({ ...plan, ...planned }, now)
    assert.deepEqual(decided, is)
    assert.deepEqual({ estimate: difference, low, high }, now.difference)
    assert.equal(units, now.units.control + now.units.treatment)
  })
}

test('swapping the arms swaps better and worse, and changes no other result', () => {
  const random = seeded(1)
  const mirrored = {
    better: 'worse',
    worse: 'better',
    no_difference_found: 'no_difference_found',
    inconclusive: 'inconclusive',
    invalid: 'invalid',
  } as const
  const seen = new Set<string>()
  for (let n = 0; n < 5_000; n++) {
    const middle = random() * 0.2 - 0.1
    const half = random() * 0.1
    const low = middle - half
    const high = middle + half
    const units = { control: 50 + Math.floor(random() * 3_000), treatment: 50 + Math.floor(random() * 3_000) }
    const metric = random() < 0.5 ? succeeded : failed
    const planned = {
      ...plan,
      metric,
      minimumEffect: random() * 0.1,
      minimumUnitsForHarm: 200,
      plannedUnits: 4_000,
    }
    const now = {
      units,
      assigned: units,
      difference: { estimate: middle, low, high },
      sampleRatioP: random() < 0.1 ? 1e-4 : 0.5,
      maxDurationReached: random() < 0.3,
      ...(random() < 0.1 ? { unsound: 'one agent has 80 % of all tasks' } : {}),
    }
    const swapped = {
      ...now,
      units: { control: units.treatment, treatment: units.control },
      difference: { estimate: -middle, low: -high, high: -low },
    }
    const one = verdictOf(planned, now)
    const other = verdictOf({ ...planned, control: 'cautious', treatment: 'steady' }, swapped)
    assert.equal(other.result, mirrored[one.result])
    // An invalid experiment ends early by harm only, and harm differs between the two sides.
    if (one.result !== 'invalid') assert.equal(other.ends, one.ends)
    assert.ok(!(one.harm && other.harm))
    seen.add(one.result)
  }
  assert.equal(seen.size, 5)
})
