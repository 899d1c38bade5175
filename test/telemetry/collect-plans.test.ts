import assert from 'node:assert/strict'
import { test } from 'node:test'
import { collectActiveRun, collectPlans, restoreRuns } from '../../src/telemetry/collect-plans.ts'
import { createMetrics, type Metrics } from '../../src/telemetry/metrics.ts'
import { PlanStates } from '../../src/evidence/plan-states.ts'
import { familiesOf } from '../../src/telemetry/metrics/exposition.ts'
import { summary } from '../evidence/runs.ts'

const hour = 3_600_000

/** Returns the lines about runs, without counts of 0. `isScrape`: as a scraper reads them. */
async function linesOf({ registry }: Metrics, isScrape = false): Promise<string[]> {
  let text = ''
  for await (const lines of familiesOf(registry, 'text', isScrape ? 'as_zero' : undefined))
    for (const line of lines) text += line
  return text.split('\n').filter((line) => /^breakwater_(plan|runs?)_/.test(line) && !/\} 0$/.test(line))
}

test('a scrape has the last run, the times, the grade and the due time of a plan', async () => {
  const metrics = createMetrics()
  const known = new PlanStates()
  for (let at = 0; at < 6; at++)
    known.add(summary(at, { everyMs: 10 * hour, rto: { promisedMs: 30_000, measuredMs: 12_500 } }))
  known.add(summary(6, { everyMs: 10 * hour, verdict: 'no evidence', reasons: ['below_floor', 'stopped'] }))
  collectPlans(metrics, known, 16 * hour)
  const plan = 'plan="drill",kind="guarded"'
  assert.deepEqual(await linesOf(metrics), [
    `breakwater_runs_ended_total{${plan},verdict="passed"} 6`,
    `breakwater_runs_ended_total{${plan},verdict="no evidence"} 1`,
    `breakwater_runs_without_evidence_total{${plan},reason="below_floor"} 1`,
    `breakwater_runs_without_evidence_total{${plan},reason="stopped"} 1`,
    `breakwater_plan_last_run_timestamp_seconds{${plan},verdict="no evidence",reasons="below_floor stopped",state="completed"} 21660`,
    `breakwater_plan_applied_faults{${plan}} 50`,
    `breakwater_plan_recovery_duration_seconds{${plan}} 12.5`,
    `breakwater_plan_promised_recovery_duration_seconds{${plan}} 30`,
    // Six of six: at least 60 % with 95 % confidence.
    `breakwater_plan_grade{${plan}} 2`,
    `breakwater_plan_graded_runs{${plan}} 6`,
    `breakwater_plan_remaining_duration_seconds{${plan}} -3600`,
  ])
})

test('what a plan does not have is absent', async () => {
  const metrics = createMetrics()
  const known = new PlanStates()
  known.add(summary())
  collectPlans(metrics, known, 0)
  assert.doesNotMatch(
    (await linesOf(metrics)).join(),
    /_grade\{|_remaining_|_recovery_|reasons=|_without_evidence/,
  )
  assert.match((await linesOf(metrics)).join(), /plan_graded_runs\{[^}]*\} 1/)
})

test('counts of earlier processes are no news, and a run of this process is', async () => {
  const metrics = createMetrics()
  const known = new PlanStates()
  known.add(summary(0))
  restoreRuns(metrics, known)
  known.add(summary(1, { name: 'new' }))
  const ended = async () => {
    collectPlans(metrics, known, 0)
    return (await linesOf(metrics, true)).filter((line) => line.startsWith('breakwater_runs_ended_total'))
  }
  const line = (plan: string) =>
    `breakwater_runs_ended_total{plan="${plan}",kind="guarded",verdict="passed"} 1`
  assert.deepEqual(await ended(), [line('drill')], 'the new plan begins at 0')
  assert.deepEqual(await ended(), [line('drill'), line('new')])
})

test('a plan that leaves has no series, and its runs count as _other', async () => {
  const metrics = createMetrics()
  const known = new PlanStates()
  known.add(summary(0, { name: 'old' }))
  collectPlans(metrics, known, 0)
  for (let at = 1; at <= 200; at++) known.add(summary(at, { name: `plan-${at}` }))
  collectPlans(metrics, known, 0)
  const lines = await linesOf(metrics)
  assert.deepEqual(
    lines.filter((line) => /plan="(old|_other)"/.test(line)),
    ['breakwater_runs_ended_total{plan="_other",kind="guarded",verdict="passed"} 1'],
  )
})

test('a name from a plan is no part of the text of another series', async () => {
  const metrics = createMetrics()
  const known = new PlanStates()
  known.add(summary(0, { name: 'a",kind="b"\n}', state: '_other' }))
  collectPlans(metrics, known, 0)
  for (const line of await linesOf(metrics)) assert.match(line, /\{plan="a__kind=_b__\}~[0-9a-f]{8}",kind=/)
})

test('a run is under way while it is, and its series ends with the run', async () => {
  const metrics = createMetrics()
  collectActiveRun(metrics, 'drill')
  assert.deepEqual(await linesOf(metrics), ['breakwater_run_active{plan="drill",kind="guarded"} 1'])
  collectActiveRun(metrics, undefined)
  assert.deepEqual(await linesOf(metrics), [])
})
