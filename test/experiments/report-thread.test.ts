import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ReportThread } from '../../src/experiments/report-thread.ts'
import { type ReportFacts, reportOn } from '../../src/experiments/report.ts'
import { simulatedFacts, unstarted } from './simulated.ts'

const arms = { control: 'default', steady: 'retries' }

const facts = simulatedFacts({
  experiment: { arms, minimumUnits: 100 },
  failing: { control: 0.2, steady: 0.02 },
  tasks: 2_500,
  ended: 'it was stopped by hand',
})

test('a report of the thread is the one that would be made here, also of more units than fit into one message', async () => {
  assert.deepEqual(await new ReportThread().report('canary', () => facts), reportOn(facts))
})

test('an experiment that has not run has a report, too', async () => {
  const { run: _, ...others } = facts
  const report = await new ReportThread().report('canary', () => ({ ...others, run: undefined }))
  assert.deepEqual(report.state, unstarted({ experiment: { arms } }).state)
})

test('requests for a report under way share the report, and the next request makes a new report', async () => {
  const thread = new ReportThread()
  let asked = 0
  const count = (): ReportFacts => {
    asked++
    return facts
  }
  const both = await Promise.all([thread.report('canary', count), thread.report('canary', count)])
  assert.equal(asked, 1)
  assert.equal(both[0], both[1])
  await thread.report('canary', count)
  assert.equal(asked, 2)
})

test('a report that fails is no reason for the next one to fail', async () => {
  const thread = new ReportThread()
  const broken = { ...facts, experiment: { ...facts.experiment, metric: 'none' as 'tcsr' } }
  const failing = thread.report('broken', () => broken)
  const next = thread.report('canary', () => facts)
  await assert.rejects(failing, TypeError)
  assert.equal((await next).name, 'canary')
})
