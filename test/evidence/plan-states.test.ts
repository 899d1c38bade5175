import assert from 'node:assert/strict'
import { test } from 'node:test'
import { MOST_PLANS, PlanStates } from '../../src/evidence/plan-states.ts'
import { dueIn, gradesIn } from '../../src/evidence/questions.ts'
import type { RunSummary } from '../../src/evidence/summary.ts'
import { summary } from './runs.ts'

const hour = 3_600_000

function statesOf(runs: readonly RunSummary[]): PlanStates {
  const states = new PlanStates()
  for (const run of runs) states.add(run)
  return states
}

test('the state of a plan is what the whole index says of the plan', () => {
  const runs = Array.from({ length: 30 }, (_, at) =>
    summary(at, {
      everyMs: 5 * hour,
      verdict: at > 27 ? 'no evidence' : at % 7 === 0 ? 'failed' : 'passed',
      reasons: at > 27 ? ['below_floor', 'stopped'] : [],
      rto: { promisedMs: 30_000, measuredMs: at * 1_000 },
    }),
  )
  const [state, ...more] = statesOf(runs).plans
  assert.deepEqual(more, [])
  assert.ok(state)
  const { kind, plan, ...grade } = gradesIn(runs, 20)[0]!
  assert.deepEqual([state.kind, state.plan, state.grade], [kind, plan, grade])
  assert.equal(state.dueAt, dueIn(runs, 100 * hour)[0]!.dueAt)
  assert.deepEqual(state.verdicts, { passed: 24, 'held (weak)': 0, failed: 4, 'no evidence': 2 })
  assert.deepEqual(state.reasons, { below_floor: 2, stopped: 2 })
  assert.deepEqual(state.rto, { promisedMs: 30_000, measuredMs: 27_000 }, 'of the last run that is evidence')
  assert.deepEqual(state.last, {
    verdict: 'no evidence',
    state: 'completed',
    reasons: ['below_floor', 'stopped'],
    endedAt: 29 * hour + 60_000,
    applied: 50,
  })
})

test('a plan that was never evidence is due since its first run, and a plan without every is never due', () => {
  const never = [3, 4].map((at) => summary(at, { everyMs: hour, verdict: 'no evidence' }))
  const states = statesOf([...never, summary(5, { name: 'free' })])
  assert.deepEqual(
    states.plans.map(({ plan, dueAt }) => [plan, dueAt]),
    [
      ['drill', 3 * hour],
      ['free', undefined],
    ],
  )
})

test('two kinds of runs with one name are two plans', () => {
  const { plans } = statesOf([summary(0), summary(1, { kind: 'soak' })])
  assert.deepEqual(
    plans.map(({ plan, kind }) => [plan, kind]),
    [
      ['drill', 'guarded'],
      ['drill', 'soak'],
    ],
  )
})

test('the plan that has not run for the longest time leaves, and no count is lost', () => {
  const names = Array.from({ length: MOST_PLANS }, (_, nth) => `plan-${nth}`)
  const runs = names.map((name, at) => summary(at, { name }))
  const states = statesOf([
    ...runs,
    summary(500, { name: 'plan-0' }),
    summary(501, { name: 'new', verdict: 'no evidence', reasons: ['stopped'] }),
  ])
  const kept = states.plans.map(({ plan }) => plan)
  assert.equal(kept.length, MOST_PLANS)
  assert.ok(kept.includes('plan-0') && !kept.includes('plan-1') && kept.includes('new'))
  for (let at = 600; at < 600 + MOST_PLANS; at++) states.add(summary(at, { name: `later-${at}` }))
  const [left, ...more] = states.left
  assert.deepEqual(more, [])
  assert.equal(left?.plan, undefined)
  assert.deepEqual(left?.verdicts, {
    passed: MOST_PLANS + 1,
    'held (weak)': 0,
    failed: 0,
    'no evidence': 1,
  })
  assert.deepEqual(left?.reasons, { stopped: 1 })
})

test('runs of unknown formats, verdicts or kinds are ignored', () => {
  const states = new PlanStates()
  for (const run of [
    undefined,
    { ...summary(), format: 2 },
    { ...summary(), verdict: 'fine' },
    { ...summary(), kind: 'walk' },
    { ...summary(), faults: [{}] },
  ])
    states.add(run)
  assert.deepEqual(states.plans, [])
  states.add({ ...summary(), more: 'of a later version' })
  assert.equal(states.plans.length, 1)
})
