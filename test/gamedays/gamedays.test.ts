import assert from 'node:assert/strict'
import { test } from 'node:test'
import { withoutSecrets } from '../../src/chaos/plan/schema.ts'
import { GameDays, type GameDaysParts } from '../../src/gamedays/gamedays.ts'
import { specOf } from '../../src/gamedays/plan.ts'
import type { GameDayRecord } from '../../src/gamedays/record.ts'
import type { Spec } from '../../src/experiments/guarded/spec.ts'
import { recordOf } from '../experiments/guarded/world.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { dayRecord, planOf, written } from './days.ts'

const ops = { by: 'ops', isOfAgent: false }

function opened(more: Partial<GameDaysParts> = {}) {
  const clock = new ManualClock()
  const stored = new Map<string, GameDayRecord>()
  const begun: Spec[] = []
  const stopped: string[] = []
  const told: string[] = []
  let refreshes = 0
  const days = new GameDays({
    clock,
    environment: 'staging',
    store: {
      write: (record) => Promise.resolve(void stored.set(record.id, record)),
      flush: () => Promise.resolve(),
    },
    runsOf: () => ({
      begin(spec) {
        begun.push(spec)
        return Promise.resolve({ ok: true, run: recordOf(spec, { id: `run-${begun.length}` }) })
      },
      stop: ({ id }) => void stopped.push(id),
      get: () => undefined,
    }),
    refusals: () => [],
    withoutSecrets,
    incidents: () => [],
    refresh: () => void refreshes++,
    onState: ({ state }) => void told.push(state),
    onProblem: () => undefined,
    ...more,
  })
  return { clock, days, stored, begun, stopped, told, refreshes: () => refreshes }
}

const secret = { name: 'broken', type: 'rpc.error', rate: 1, match: { header: { 'x-key': 'hunter2' } } }

const secretPlan = () => {
  const [first] = written().experiments
  return planOf({ experiments: [{ ...first!, spec: { ...first!.spec, faults: [secret] } }] })
}

test('one GameDay is under way at a time', async () => {
  const { days, clock } = opened()
  const started = await days.start(planOf(), ops)
  assert.ok(started.ok)
  const again = await days.start(planOf({ name: 'other' }), ops)
  assert.deepEqual(again, {
    ok: false,
    refusals: ['the GameDay "day" is running: only one is under way at a time'],
  })
  days.change('day', (day) => day.stop('ops', 'enough'))
  assert.ok((await days.start(planOf({ name: 'other' }), ops)).ok)
  await clock.advance(0)
})

test('nothing begins when the record cannot be written', async () => {
  const { days, begun } = opened({
    store: { write: () => Promise.reject(new Error('ENOSPC')), flush: () => Promise.resolve() },
  })
  assert.deepEqual(await days.start(planOf(), ops), {
    ok: false,
    refusals: ['the GameDay could not be written: ENOSPC'],
  })
  assert.deepEqual(begun, [])
  assert.deepEqual(days.list(), [])
})

test('secrets of a plan reach the runs, and no record', async () => {
  const { days, stored, begun, clock } = opened()
  const started = await days.start(secretPlan(), ops)
  assert.ok(started.ok)
  await clock.advance(0)
  assert.match(JSON.stringify(begun), /hunter2/)
  assert.doesNotMatch(JSON.stringify([...stored.values(), days.list(), started]), /hunter2/)
  assert.equal(started.gameDay.isComplete, false)
})

test('a GameDay under way when its process ended is paused, and continues on resume', async () => {
  const { days, begun, clock, stored, told } = opened()
  const steps = dayRecord(planOf()).steps.map((step, at) =>
    at === 0 ? { ...step, state: 'running' as const, runs: ['run-9'] } : step,
  )
  await days.recover([dayRecord(planOf(), { steps })])
  const [record] = stored.values()
  assert.equal(record!.state, 'paused')
  assert.equal(record!.reason, 'the gateway paused it: the gateway ended')
  assert.deepEqual(
    record!.steps.map(({ state }) => state),
    ['planned', 'planned', 'planned'],
  )
  assert.equal(begun.length, 0)
  assert.deepEqual(
    days.change('day', (day) => day.resume('ops')),
    { ok: true },
  )
  await clock.advance(0)
  assert.deepEqual(
    begun.map(({ name }) => name),
    ['one'],
  )
  assert.deepEqual(told, ['running'])
})

test('a GameDay with secrets cannot be resumed by another process', async () => {
  const { days, begun } = opened()
  const plan = withoutSecrets(secretPlan())
  await days.recover([dayRecord(plan, { state: 'paused', isComplete: false })])
  const resumed = days.change('day', (day) => day.resume('ops'))
  assert.match(resumed.ok ? '' : resumed.why, /the plan has secrets, which are not stored/)
  assert.deepEqual(begun, [])
})

test('the end of the gateway pauses the GameDay before its runs end', async () => {
  const { days, stopped, clock, stored } = opened()
  await days.start(planOf(), ops)
  await clock.advance(0)
  await days.close()
  assert.deepEqual(stopped, ['run-1'])
  assert.equal([...stored.values()][0]!.state, 'paused')
  assert.deepEqual((await days.start(planOf(), ops)).ok, false)
})

test('calls are heard only while a GameDay has limits for neighbours', async () => {
  const { days, refreshes } = opened()
  await days.start(planOf(), ops)
  assert.equal(days.hearsCalls, false)
  days.change('day', (day) => day.stop('ops', 'enough'))
  await days.start(planOf({ stop: { neighbours: [{ metric: 'error_ratio', above: '2%' }] } }), ops)
  assert.equal(days.hearsCalls, true)
  assert.equal(refreshes(), 1)
  days.change('day', (day) => day.stop('ops', 'enough'))
  assert.equal(days.hearsCalls, false)
  assert.equal(refreshes(), 2)
})

test('experiments get the load, the environment and the recovery time of the GameDay', () => {
  const workload = { name: 'w', tasks: [{ name: 't', steps: [{ server: 'a', tool: 'x' }] }] }
  const plan = planOf({
    rto: '30s',
    load: { workload, concurrency: 3 },
    scope: { servers: ['a'], environment: 'staging' },
  })
  const spec = specOf(plan, plan.experiments[0]!)
  assert.equal(spec.recovery.rto, 30_000)
  assert.equal(spec.load?.concurrency, 3)
  assert.equal(spec.targets.environment, 'staging')
})

test('a plan with two experiments of a name, or without a lead, is refused', () => {
  const [first] = written().experiments
  assert.throws(
    () => planOf({ experiments: [first, first] }),
    /there is an experiment \\"one\\" in this GameDay/,
  )
  assert.throws(() => planOf({ roles: { observer: 'x' } }), /expected a lead/)
})
