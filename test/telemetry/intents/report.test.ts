import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { IntentReport, ReportAnswer } from '../../../src/telemetry/intents.ts'
import { failed } from '../../policies/breaker/rig.ts'
import { intentsRig } from './rig.ts'

function setUp(settings: { idle?: number; max?: number; remember?: number } = {}) {
  const { intents, exposed, ...rig } = intentsRig()
  intents.tune({ idle: 30_000, max: 10_000, remember: 600_000, ...settings })
  return {
    ...rig,
    intents,
    report: (intent: string, outcome: IntentReport['outcome'], more: Partial<IntentReport> = {}) =>
      intents.report({ intent, outcome, ...more }),
    linked: () => exposed('breakwater_intent_outcomes_total'),
    unlinked: () => exposed('breakwater_intent_outcomes_unlinked_total'),
    closed: () => exposed('breakwater_intents_total'),
  }
}

const line = (outcome: string, calls: string, count: number, more = 'source="header"') =>
  `breakwater_intent_outcomes_total{outcome="${outcome}",calls="${calls}",${more}} ${count}`

const unlinkedLine = (reason: string, count: number) =>
  `breakwater_intent_outcomes_unlinked_total{reason="${reason}"} ${count}`

const task = { source: 'header', tenant: 'a', arm: '', calls: 1, failed: 0, over: true } as const

const reasonOf = (answer: ReportAnswer) => (answer.linked ? undefined : answer.reason)

test('how tasks ended is counted by whether calls of them failed', async () => {
  const { begin, report, linked } = setUp()
  const tasks = [
    ['succeeded', false],
    ['succeeded', false],
    ['succeeded', true],
    ['failed', false],
    ['failed', true],
    ['failed', true],
    ['failed', true],
  ] as const
  for (const [index, [outcome, hit]] of tasks.entries()) {
    begin(`task ${index}`)()
    begin(`task ${index}`)(hit ? failed() : undefined)
    const answer = report(`task ${index}`, outcome)
    assert.deepEqual(answer, {
      linked: true,
      repeated: false,
      task: { ...task, calls: 2, failed: hit ? 1 : 0 },
    })
  }
  assert.deepEqual(await linked(), [
    line('succeeded', 'ok', 2),
    line('succeeded', 'failed', 1),
    line('failed', 'ok', 1),
    line('failed', 'failed', 3),
  ])
})

test('a reported task is over, and its name belongs to another task from then on', async () => {
  const { clock, begin, report, intents, closed, linked } = setUp()
  begin('x')(failed())
  report('x', 'failed')
  assert.equal(intents.size, 0)
  assert.deepEqual(await closed(), ['breakwater_intents_total{outcome="failed",source="header"} 1'])
  begin('x')()
  assert.deepEqual(report('x', 'succeeded'), { linked: true, repeated: false, task })
  assert.deepEqual(await linked(), [line('failed', 'failed', 1), line('succeeded', 'ok', 1)])
  await clock.advance(30_000)
  assert.equal(clock.pending, 0)
})

test('calls under way count for the task that was reported meanwhile', async () => {
  const { begin, report, linked, intents } = setUp()
  const [one, other] = [begin('x'), begin('x')]
  one()
  assert.deepEqual(report('x', 'failed'), {
    linked: true,
    repeated: false,
    task: { ...task, calls: 2, over: false },
  })
  assert.deepEqual(await linked(), [])
  other(failed())
  assert.deepEqual(await linked(), [line('failed', 'failed', 1)])
  assert.equal(intents.size, 0)
})

test('a task is linked after its assumed end, while remembered', async () => {
  const { clock, begin, report, linked, unlinked } = setUp()
  begin('x')()
  begin('y')()
  await clock.advance(30_000)
  await clock.advance(599_999)
  assert.deepEqual(report('x', 'succeeded'), { linked: true, repeated: false, task })
  await clock.advance(1)
  assert.equal(reasonOf(report('y', 'succeeded')), 'unknown')
  assert.deepEqual(await linked(), [line('succeeded', 'ok', 1)])
  assert.deepEqual(await unlinked(), [unlinkedLine('unknown', 1)])
})

test('a report is counted once, however often sent, and the opposite is refused', async () => {
  const { begin, report, linked, unlinked } = setUp()
  begin('x')()
  const end = begin('y')
  for (const name of ['x', 'y']) {
    assert.deepEqual(
      [report(name, 'failed'), report(name, 'failed')].map((answer) => answer.linked && answer.repeated),
      [false, true],
    )
    const refused = report(name, 'succeeded')
    assert.equal(reasonOf(refused), 'contradicted')
    assert.match(refused.linked ? '' : refused.error, /an earlier report says that the task failed/)
  }
  end()
  assert.deepEqual(report('y', 'failed'), { linked: true, repeated: true, task })
  assert.deepEqual(await linked(), [line('failed', 'ok', 2)])
  assert.deepEqual(await unlinked(), [unlinkedLine('contradicted', 2)])
})

test('several tasks with one name need a source or a tenant, and nothing is guessed', async () => {
  const { begin, report, linked, unlinked } = setUp()
  begin('x')()
  begin('x', { tenant: 'b' })()
  begin('x', { tenant: 'b', inMeta: true, arm: 'treatment' })(failed())
  const refused = report('x', 'failed')
  assert.equal(reasonOf(refused), 'ambiguous')
  assert.deepEqual(refused.linked || refused.tasks.map(({ source, tenant }) => [source, tenant]), [
    ['header', 'a'],
    ['header', 'b'],
    ['meta', 'b'],
  ])
  assert.equal(reasonOf(report('x', 'failed', { tenant: 'b' })), 'ambiguous')
  assert.equal(reasonOf(report('x', 'failed', { tenant: 'c' })), 'unknown')
  assert.equal(report('x', 'failed', { source: 'meta' }).linked, true)
  assert.equal(report('x', 'succeeded', { source: 'header', tenant: 'b' }).linked, true)
  assert.deepEqual(await linked(), [
    line('failed', 'failed', 1, 'arm="treatment",source="meta"'),
    line('succeeded', 'ok', 1),
  ])
  assert.deepEqual(await unlinked(), [unlinkedLine('ambiguous', 2), unlinkedLine('unknown', 1)])
})

test('a pause that divides a task in two does not hide the calls before it', async () => {
  const { clock, begin, report, linked, closed } = setUp()
  begin('x')(failed())
  for (let part = 0; part < 2; part++) {
    await clock.advance(60_000)
    begin('x')()
  }
  assert.deepEqual(report('x', 'failed'), {
    linked: true,
    repeated: false,
    task: { ...task, calls: 3, failed: 1 },
  })
  assert.deepEqual(await linked(), [line('failed', 'failed', 1)])
  assert.deepEqual(
    (await closed()).map((row) => row.split(' ').at(-1)),
    ['1', '2'],
  )
})

test('no more tasks are remembered than may be open', async () => {
  const { clock, begin, report } = setUp({ max: 2 })
  for (const name of ['x', 'y', 'z']) begin(name)()
  await clock.advance(30_000)
  assert.equal(reasonOf(report('x', 'failed')), 'unknown')
  assert.equal(report('y', 'failed').linked, true)
  assert.equal(report('z', 'failed').linked, true)
})

test('with a memory of no tasks, only open tasks are linked', async () => {
  const { clock, begin, report } = setUp({ remember: 0 })
  begin('x')()
  begin('y')()
  assert.equal(report('x', 'failed').linked, true)
  assert.equal(reasonOf(report('x', 'failed')), 'unknown')
  await clock.advance(30_000)
  assert.equal(reasonOf(report('y', 'failed')), 'unknown')
})

test('a task with calls in arms of several experiments is one task, and each experiment hears its end', async () => {
  const { begin, report, heard, intents, closed } = setUp()
  for (const arm of ['', 'one/control', 'two/treatment', 'one/control', '']) begin('x', { arm })()
  assert.equal(intents.size, 1)
  assert.equal(report('x', 'succeeded').linked, true)
  assert.deepEqual(heard, ['x one/control succeeded', 'x two/treatment succeeded'])
  assert.deepEqual(await closed(), [
    'breakwater_intents_total{outcome="ok",arm="one/control",source="header"} 1',
  ])
})

test('in two arms of one experiment a name is that of two tasks, whatever other experiments they are in', async () => {
  const { begin, report, heard, intents } = setUp()
  for (const arm of ['one/control', 'one/treatment', 'two/control']) begin('x', { arm })()
  assert.equal(intents.size, 2)
  assert.equal(reasonOf(report('x', 'failed')), 'ambiguous')
  assert.equal(report('x', 'failed', { arm: 'one/treatment' }).linked, true)
  assert.equal(report('x', 'succeeded', { arm: 'two/control' }).linked, true)
  assert.deepEqual(heard, ['x one/treatment failed', 'x one/control succeeded', 'x two/control succeeded'])
})
