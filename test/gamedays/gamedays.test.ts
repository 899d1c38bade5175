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

const neighbours = { stop: { neighbours: [{ metric: 'error_ratio', above: '2%' }] } }

/** GameDays whose config compiles, and whose disk writes, only while `isSound` says so. */
function troubled() {
  const sound = { config: true, disk: true }
  const problems: string[] = []
  const written: GameDayRecord[] = []
  const scene = opened({
    refresh() {
      if (!sound.config) throw new Error('the config does not compile')
    },
    store: {
      write(record) {
        if (!sound.disk) return Promise.reject(new Error('ENOSPC'))
        return Promise.resolve(void written.push(record))
      },
      flush: () => Promise.resolve(),
    },
    onProblem: (_, problem) => void problems.push(problem),
  })
  return { ...scene, sound, problems, written }
}

test('a GameDay whose neighbours cannot be heard does not begin', async () => {
  const { days, sound, begun, clock } = troubled()
  sound.config = false
  const started = await days.start(planOf(neighbours), ops)
  assert.deepEqual(started, {
    ok: false,
    refusals: ['the calls of neighbours cannot be heard: the config does not compile'],
  })
  await clock.advance(5_000)
  assert.deepEqual([begun, days.list(), days.current], [[], [], undefined])
  sound.config = true
  assert.ok((await days.start(planOf(neighbours), ops)).ok)
})

test('a GameDay whose neighbours cannot be heard again stays paused', async () => {
  const { days, sound, stopped, clock } = troubled()
  assert.ok((await days.start(planOf(neighbours), ops)).ok)
  await clock.advance(0)
  days.change('day', (day) => day.pause('ops', 'a look'))
  sound.config = false
  days.change('day', (day) => day.resume('ops'))
  await clock.advance(0)
  assert.equal(days.current?.state, 'paused')
  assert.match(days.current.reason, /the calls of neighbours cannot be heard: the config does not compile/)
  assert.deepEqual(stopped, ['run-1', 'run-2'])
})

test('a config that does not compile never keeps a GameDay from its end', async () => {
  const { days, sound, stopped, clock } = troubled()
  assert.ok((await days.start(planOf(neighbours), ops)).ok)
  await clock.advance(0)
  sound.config = false
  assert.deepEqual(
    days.change('day', (day) => day.stop('ops', 'enough')),
    { ok: true },
  )
  assert.deepEqual(stopped, ['run-1'])
  assert.equal(days.current, undefined)
})

test('a GameDay of an earlier process hears its neighbours once it continues', async () => {
  const { days, refreshes } = opened()
  await days.recover([dayRecord(planOf(neighbours))])
  assert.deepEqual([days.hearsCalls, refreshes()], [false, 0])
  days.change('day', (day) => day.resume('ops'))
  assert.deepEqual([days.hearsCalls, refreshes()], [true, 1])
  days.change('day', (day) => day.pause('ops', 'a look'))
  assert.deepEqual([days.hearsCalls, refreshes()], [false, 2])
})

test('a GameDay that cannot be recorded is paused, and recorded once the disk has room', async () => {
  const { days, sound, written, stopped, problems, clock } = troubled()
  assert.ok((await days.start(planOf(), ops)).ok)
  await clock.advance(0)
  sound.disk = false
  days.change('day', (day) => day.observe('ops', 'slow'))
  await clock.advance(0)
  assert.equal(days.current?.state, 'paused')
  assert.match(days.current.reason, /^the gateway paused it: the GameDay could not be written: ENOSPC$/)
  assert.deepEqual(stopped, ['run-1'])
  await clock.advance(300_000)
  assert.ok(problems.length > 3 && problems.length < 20, String(problems.length))
  assert.equal(written.at(-1)?.state, 'running')
  sound.disk = true
  await clock.advance(30_000)
  assert.equal(written.at(-1)?.state, 'paused')
  assert.equal(written.at(-1)?.observations.length, 1)
  await clock.advance(60_000)
  assert.equal(clock.pending, 0, 'no timer is left')
})

test('of two unfinished GameDays on disk, only the later one can continue', async () => {
  const { days, stored, begun, clock } = opened()
  const records = [1, 2].map((at) =>
    dayRecord(planOf({ name: `day-${at}` }), { id: `gd-${at}-00000000`, startedAt: at }),
  )
  await days.recover(records)
  assert.deepEqual(
    [...stored.values()].map(({ state, reason }) => [state, reason]),
    [
      ['stopped', 'the gateway stopped it: another GameDay was under way when the gateway started'],
      ['paused', 'the gateway paused it: the gateway ended'],
    ],
  )
  assert.equal(days.change('day-1', (day) => day.resume('ops')).ok, false)
  days.change('day-2', (day) => day.resume('ops'))
  await clock.advance(0)
  assert.equal(begun.length, 1)
})

test('a disk that hangs does not keep the gateway from ending', async () => {
  const hung = new Promise<never>(() => undefined)
  const { days, clock } = opened({ store: { write: () => Promise.resolve(), flush: () => hung } })
  let isClosed = false
  void days.close().then(() => (isClosed = true))
  await clock.advance(2_000)
  assert.ok(isClosed)
})

/** Begins a GameDay whose first record is being written until `release`. */
function slowly() {
  let release = () => undefined as void
  const held = new Promise<void>((resolve) => (release = resolve))
  const scene = opened({ store: { write: () => held, flush: () => held } })
  return { ...scene, started: scene.days.start(planOf(), ops), release }
}

test('a GameDay that is stopped before its first record is written begins nothing', async () => {
  const { days, started, release, begun, clock } = slowly()
  days.change('day', (day) => day.stop('ops', 'a mistake'))
  release()
  const answer = await started
  assert.equal(answer.ok && answer.gameDay.state, 'stopped')
  await clock.advance(10_000)
  assert.deepEqual([begun, clock.pending], [[], 0])
})

test('a GameDay whose gateway ends during the first write is paused, and says so', async () => {
  const { days, started, release, begun } = slowly()
  const closed = days.close()
  release()
  await closed
  const answer = await started
  assert.equal(answer.ok && answer.gameDay.state, 'paused')
  assert.deepEqual(begun, [])
})

test('a plan above 1 MiB is refused, because each change writes the plan again', async () => {
  const { days } = opened()
  const [first] = written().experiments
  const steps = Array.from({ length: 100 }, () => ({ tool: 'x', arguments: { text: 'x'.repeat(12_000) } }))
  const load = { workload: { name: 'w', tasks: [{ name: 't', steps }] } }
  const large = planOf({ experiments: [{ ...first!, spec: { ...first!.spec, load } }] })
  assert.match(days.refusals(large).join(), /^the plan has \d{4}KiB; at most 1MiB is allowed$/)
  assert.deepEqual(days.refusals(planOf()), [])
})

test('the newest 100 GameDays stay in memory', async () => {
  const { days } = opened()
  for (let at = 0; at < 120; at++) {
    assert.ok((await days.start(planOf({ name: `day-${at}` }), ops)).ok)
    days.change(`day-${at}`, (day) => day.stop('ops', 'enough'))
  }
  const names = days.list().map(({ plan: { name } }) => name)
  assert.deepEqual([names.length, names[0], names.at(-1)], [100, 'day-20', 'day-119'])
})

test('a state folder takes at most 1,000 GameDays', async () => {
  const { days } = opened()
  await days.recover([], 1_000)
  assert.match(days.refusals(planOf()).join(), /has 1000 GameDays, the maximum/)
})
