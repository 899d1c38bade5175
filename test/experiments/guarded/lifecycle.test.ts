import assert from 'node:assert/strict'
import { test } from 'node:test'
import { TICK_MS } from '../../../src/experiments/guarded/lifecycle.ts'
import type { RunRecord } from '../../../src/experiments/guarded/record.ts'
import { specOf, stage } from './world.ts'

test('a run goes through baseline, stages and recovery, and is completed', async () => {
  const { lifecycle, done, until } = stage()
  lifecycle.begin()
  const run = await until('over')
  assert.equal(run.state, 'completed', run.reason)
  assert.deepEqual(done, ['begin', 'arm 0', 'arm 1', 'rollback', 'end'])
  assert.deepEqual(
    run.stages.map(({ share, treatment }) => [share, treatment.calls > 20]),
    [
      [0.25, true],
      [0.5, true],
    ],
  )
  assert.equal(run.recovery?.steadyAfterMs, 0)
  assert.deepEqual(run.rollback?.armed, [])
  assert.ok(run.faults[0]!.injected > 0)
})

test('a breach of the gate rolls back within two ticks of being measurable', async () => {
  const { lifecycle, clock, rules, until } = stage()
  lifecycle.begin()
  await until('stage', 1)
  rules.fares.treatment.failing = 1
  const since = clock.now()
  const run = await until('recovery')
  assert.ok(clock.now() - since <= 2 * TICK_MS + 50, `${clock.now() - since} ms`)
  assert.equal(rules.armed, false)
  assert.equal(run.breach?.rule.metric, 'error_ratio')
  const over = await until('over')
  assert.deepEqual([over.state, over.stages.length], ['aborted', 2])
  assert.match(over.reason, /^error_ratio of treatment was \d/)
})

test('the baseline begins when the agents of the load have had their first answers, however slow these are', async () => {
  const { lifecycle, clock, rules, until } = stage()
  rules.isReady = false
  rules.fares.all = { tookMs: 900, failing: 1 }
  lifecycle.begin()
  await clock.advance(20_000)
  assert.equal(lifecycle.record.phase, 'baseline')
  assert.deepEqual(lifecycle.record.samples, [])
  rules.isReady = true
  rules.fares.all = { tookMs: 10, failing: 0 }
  await clock.advance(TICK_MS)
  const run = await until('over')
  assert.equal(run.state, 'completed', run.reason)
  assert.equal(run.baseline?.failed, 0)
})

test('a load whose agents get no answers ends the run, and nothing was injected', async () => {
  const { lifecycle, rules, done, until } = stage()
  rules.isReady = false
  lifecycle.begin()
  const run = await until('over')
  assert.deepEqual(
    [run.state, run.reason],
    ['failed', 'the agents of its load had no first answers within 30s'],
  )
  assert.deepEqual(done, ['begin', 'rollback', 'end'])
})

test('without its steady state nothing is injected', async () => {
  const { lifecycle, rules, done, until } = stage()
  rules.servers = [{ name: 'a', isUp: false, uptimeMs: 0, probeFailures: 1 }]
  lifecycle.begin()
  const run = await until('over')
  assert.equal(run.state, 'failed')
  assert.match(
    run.reason,
    /^the steady state does not hold: status = up \(found down\); nothing was injected$/,
  )
  assert.deepEqual(done, ['begin', 'rollback', 'end'])
})

test('a run without calls is invalid, and a run with too few calls inconclusive', async () => {
  const silent = stage()
  silent.rules.callsPerTick = 0
  silent.lifecycle.begin()
  assert.equal((await silent.until('over')).state, 'invalid')
  const few = stage(specOf({ baseline: { duration: '2s', minimum: 1_000 } }))
  few.lifecycle.begin()
  assert.equal((await few.until('over')).state, 'inconclusive')
  assert.ok(!few.done.includes('arm 0'))
})

test('an anomalous baseline is refused', async () => {
  const { lifecycle, rules, clock, done, until } = stage(
    specOf({ baseline: { duration: '12s', minimum: 10 }, hypothesis: { steadyState: ['error_ratio < 1%'] } }),
  )
  lifecycle.begin()
  await clock.advance(6_000)
  rules.fares.all.tookMs = 400
  const run = await until('over')
  assert.equal(run.state, 'failed')
  assert.match(run.reason, /^the baseline is anomalous: /)
  assert.ok(!done.includes('arm 0'))
})

test('thresholds learned from the baseline become rules of the gate', async () => {
  const learn = [{ method: 'percentile', metric: 'p95', percentile: 95, factor: 3 }]
  const { lifecycle, rules, until } = stage(specOf({ baseline: { duration: '6s', minimum: 10, learn } }))
  lifecycle.begin()
  await until('stage')
  rules.fares.treatment.tookMs = 100
  const run = await until('over')
  assert.deepEqual([run.state, run.breach?.rule.learned], ['aborted', 'p95 of the baseline × 3'])
})

test('a stage without calls ends the run, because the stage proves nothing', async () => {
  const { lifecycle, rules, until } = stage()
  lifecycle.begin()
  await until('stage')
  rules.callsPerTick = 0
  const run = await until('over')
  assert.deepEqual([run.state, run.reason, run.rollback?.armed], ['invalid', 'no call has ended for 1s', []])
})

test('a treatment with too few calls is inconclusive', async () => {
  const { lifecycle, rules, meter, clock, until } = stage(specOf({ gate: gateOf({ minimum: 500 }) }))
  lifecycle.begin()
  await until('stage')
  assert.ok(meter && clock && rules)
  const run = await until('over')
  assert.equal(run.state, 'inconclusive')
  assert.match(run.reason, /^the treatment had \d+ calls in stage 1, and the gate needs 500$/)
})

const gateOf = (more: object) => ({
  rollbackOn: [{ metric: 'error_ratio', above: '10%' }],
  over: '1s',
  minimum: 5,
  missing: '1s',
  ...more,
})

test('a run that injected nothing is invalid, never green', async () => {
  const { lifecycle, rules, until } = stage()
  rules.injects = false
  lifecycle.begin()
  const run = await until('over')
  assert.deepEqual([run.state, run.reason], ['invalid', 'nothing was injected: no call matched'])
})

test('an error of the engine makes a run invalid', async () => {
  const { lifecycle, rules, until } = stage()
  lifecycle.begin()
  await until('stage')
  rules.engineErrors = 1
  const run = await until('over')
  assert.deepEqual([run.state, run.reason], ['invalid', 'the fault engine failed 1 time'])
})

test('a hypothesis that does not hold though the gate does is a deviation', async () => {
  const { lifecycle, rules, until } = stage()
  lifecycle.begin()
  await until('stage')
  rules.fares.treatment.tookMs = 900
  const run = await until('over')
  assert.equal(run.state, 'deviated')
  assert.match(run.reason, /^the hypothesis did not hold in stage 1: .*p95 < 500ms \(found [89]\d\dms\)/)
})

test('a steady state that does not come back is a deviation, after the limit', async () => {
  const { lifecycle, rules, until } = stage()
  lifecycle.begin()
  await until('recovery')
  rules.fares.all.tookMs = 900
  const run = await until('over')
  assert.equal(run.state, 'deviated')
  assert.match(run.reason, /^the steady state did not come back within 5s: p95 < 500ms/)
  assert.ok(run.recovery!.waitedMs >= 5_000 && run.recovery!.waitedMs < 5_500)
})

test('the time to recover ends where the good window begins', async () => {
  const { lifecycle, rules, clock, until } = stage()
  lifecycle.begin()
  await until('recovery')
  rules.fares.all.failing = 0.5
  await clock.advance(2_000)
  rules.fares.all.failing = 0
  const run = await until('over')
  assert.equal(run.state, 'completed', run.reason)
  const after = run.recovery!.steadyAfterMs!
  assert.ok(after >= 1_750 && after <= 2_500, `${after} ms`)
  // The stages take four seconds; faults hit calls from the first second on.
  const since = run.recovery!.recoveredAfterMs! - after
  assert.ok(since >= 3_900 && since <= 4_500, `${since} ms more from the first effect`)
})

test('layers recover by name, and one that does not is a deviation', async () => {
  const { lifecycle, rules, clock, until } = stage()
  lifecycle.begin()
  await until('stage', 1)
  rules.layers = [{ name: 'breaker a/t', state: 'open', isWell: false }]
  await until('recovery')
  await clock.advance(2_000)
  rules.layers = [{ name: 'breaker a/t', state: 'closed', isWell: true }]
  const run = await until('over')
  assert.equal(run.state, 'completed', run.reason)
  assert.deepEqual(run.rollback?.troubled, ['breaker a/t open'])
  assert.ok(run.recovery!.layers['breaker a/t']! >= 2_000)

  const stuck = stage()
  stuck.lifecycle.begin()
  await stuck.until('stage')
  stuck.rules.layers = [{ name: 'server a', state: 'down', isWell: false }]
  const over = await stuck.until('over')
  assert.deepEqual([over.state, over.reason], ['deviated', 'server a did not recover'])
})

test('trouble during the stages is noted, with its duration', async () => {
  const { lifecycle, rules, clock, until } = stage()
  lifecycle.begin()
  await until('stage')
  rules.layers = [{ name: 'server a', state: 'down', isWell: false }]
  await clock.advance(1_000)
  rules.layers = [{ name: 'server a', state: 'up', isWell: true }]
  const run = await until('over')
  assert.equal(run.state, 'completed', run.reason)
  const [trouble, ...others] = run.troubles
  assert.deepEqual([trouble?.name, trouble?.state, others], ['server a', 'down', []])
  const lasted = trouble!.untilMs! - trouble!.fromMs
  assert.ok(lasted >= 750 && lasted <= 1_250, `${lasted} ms`)
})

test('detection is from the first effect to the first sign after it', async () => {
  const { lifecycle, clock, until } = stage()
  lifecycle.begin()
  await until('stage')
  await clock.advance(700)
  lifecycle.noticed('breaker a/t open')
  lifecycle.noticed('server a down')
  const run = await until('over')
  assert.equal(run.detection?.sign, 'breaker a/t open')
  assert.ok(run.detection.afterMs! >= 600 && run.detection.afterMs! <= 750, `${run.detection.afterMs}`)
})

for (const phase of ['baseline', 'stage', 'recovery'] as const) {
  test(`an operator can stop a run in its ${phase}, and everything is undone`, async () => {
    const { lifecycle, rules, done, until } = stage()
    lifecycle.begin()
    await until(phase)
    lifecycle.stop('somebody', 'enough')
    const run = await until('over')
    assert.deepEqual([run.state, run.reason], ['aborted', 'somebody stopped it: enough'])
    assert.deepEqual([rules.armed, rules.isMeasured, run.rollback?.armed], [false, false, []])
    assert.equal(done.at(-1), 'end')
  })

  test(`a failure in its ${phase} ends a run at once, and everything is undone`, async () => {
    const { lifecycle, rules, clock, until } = stage()
    lifecycle.begin()
    await until(phase)
    const at = clock.now()
    lifecycle.fail('the gateway was stopped')
    assert.equal(clock.now(), at)
    const run = lifecycle.record
    assert.deepEqual([run.state, run.phase, run.reason], ['failed', 'over', 'the gateway was stopped'])
    assert.deepEqual([rules.armed, rules.isMeasured], [false, false])
    await clock.advance(60_000)
    assert.equal(lifecycle.record, run, 'no event follows')
  })
}

test('a stage that cannot be applied fails the run, and its parts are undone', async () => {
  const { lifecycle, rules, done, until } = stage()
  lifecycle.begin()
  await until('stage')
  rules.armFails = 'it does not compile'
  const run = await until('over')
  assert.deepEqual(
    [run.state, run.reason],
    ['failed', 'stage 2 could not be put into force: it does not compile'],
  )
  assert.deepEqual(done.slice(-2), ['rollback', 'end'])
})

test('a run that cannot begin fails', () => {
  const { lifecycle, rules } = stage()
  rules.beginFails = 'no way'
  lifecycle.begin()
  assert.deepEqual([lifecycle.record.state, lifecycle.record.reason], ['failed', 'no way'])
})

test('faults that somebody takes away end the run', async () => {
  const { lifecycle, rules, until } = stage()
  lifecycle.begin()
  await until('stage')
  rules.gone = 'somebody took its faults away: broken'
  const run = await until('over')
  assert.deepEqual([run.state, run.reason], ['aborted', 'somebody took its faults away: broken'])
})

test('an incomplete rollback is tried again, and a permanent failure is reported', async () => {
  const again = stage()
  again.rules.sticks = 2
  again.lifecycle.begin()
  const run = await again.until('over')
  assert.deepEqual([run.state, run.rollback?.armed], ['completed', []])
  const never = stage()
  never.rules.sticks = Infinity
  never.lifecycle.begin()
  const over = await never.until('over')
  assert.deepEqual([over.state, over.reason], ['failed', 'the rollback left something behind'])
  assert.deepEqual(over.rollback?.armed, ['broken'])
})

test('stages that were skipped are not played', async () => {
  const { lifecycle, done, until } = stage(specOf(), { firstStage: 1, approver: 'boss' })
  lifecycle.begin()
  const run = await until('over')
  assert.equal(run.state, 'completed', run.reason)
  assert.deepEqual(done, ['begin', 'arm 1', 'rollback', 'end'])
})

test('samples stay bounded, however long a stage is', async () => {
  const { lifecycle, rules, until } = stage(
    specOf({ stages: [{ share: 0.5, duration: '30m' }], gate: gateOf({ missing: '5m' }) }),
  )
  rules.callsPerTick = 1
  lifecycle.begin()
  await until('stage')
  let most = 0
  for (let n = 0; n < 20 && lifecycle.record.phase === 'stage'; n++) {
    await until('recovery').catch(() => undefined)
    most = Math.max(most, lifecycle.record.samples.length)
  }
  assert.ok(most > 100 && most <= 600, `${most} rows`)
  assertEachCallOnce(lifecycle.record)
})

test('each call that counts for the baseline or a stage is in one row of the samples', async () => {
  const { lifecycle, until } = stage(
    specOf({
      stages: [
        { share: 0.25, duration: '2300ms' },
        { share: 0.5, duration: '1700ms' },
      ],
    }),
  )
  lifecycle.begin()
  assertEachCallOnce(await until('over'))
})

test('a stage has its own rows and reports each second, after a baseline of any length', async () => {
  const { lifecycle, told, until } = stage(
    specOf({ baseline: { duration: '50m', minimum: 10 }, stages: [{ share: 0.5, duration: '60s' }] }),
  )
  lifecycle.begin()
  let before = 0
  for (let n = 0; n < 40 && lifecycle.record.phase === 'baseline'; n++) {
    before = told.ticks
    await until('stage').catch(() => undefined)
  }
  before = told.ticks
  const run = await until('recovery')
  assert.ok(told.ticks - before >= 55, `${told.ticks - before} ticks`)
  const rows = run.samples.filter(({ phase }) => phase === 'stage').length
  assert.ok(rows >= 25 && run.samples.length <= 600, `${rows} of ${run.samples.length} rows`)
  assertEachCallOnce(run)
})

function assertEachCallOnce({ samples, stages, baseline }: RunRecord): void {
  const sum = (arm: string, share: number) =>
    samples
      .filter((row) => row.phase !== 'recovery' && row.share === share)
      .reduce((calls, { arms }) => calls + (arms[arm]?.calls ?? 0), 0)
  assert.equal(sum('all', 0), baseline?.calls)
  for (const { share, control, treatment } of stages)
    assert.deepEqual([sum('control', share), sum('treatment', share)], [control.calls, treatment.calls])
}

test('nothing is armed before its journal entry, and nothing without an entry', async () => {
  const { lifecycle, rules, clock, done, until } = stage()
  let write: (problem: string | undefined) => void = () => undefined
  rules.written = ({ phase }) =>
    phase === 'stage' ? new Promise((resolve) => (write = resolve)) : Promise.resolve(undefined)
  lifecycle.begin()
  await until('stage')
  await clock.advance(900)
  assert.deepEqual(done, ['begin'])
  write(undefined)
  await until('stage', 1)
  assert.deepEqual(done, ['begin', 'arm 0'])
  write('the disk is full')
  const run = await until('over')
  assert.deepEqual([run.state, run.reason], ['failed', 'the disk is full'])
  assert.deepEqual(done, ['begin', 'arm 0', 'rollback', 'end'])
})

test('a stop before a stage is in force prevents arming', async () => {
  const { lifecycle, rules, done, until } = stage()
  let write: (problem: string | undefined) => void = () => undefined
  rules.written = ({ phase }) =>
    phase === 'stage' ? new Promise((resolve) => (write = resolve)) : Promise.resolve(undefined)
  lifecycle.begin()
  await until('stage')
  lifecycle.stop('somebody', 'enough')
  write(undefined)
  assert.equal((await until('over')).state, 'aborted')
  assert.deepEqual(done, ['begin', 'rollback', 'end'])
})

test('a rule that was never measured in a stage makes a run inconclusive', async () => {
  const rollbackOn = [
    { metric: 'error_ratio', above: '10%' },
    { metric: 'p95', above: 100, of: 'difference' },
  ]
  const { lifecycle, rules, until } = stage(specOf({ gate: gateOf({ rollbackOn, minimum: 60 }) }))
  rules.callsPerTick = 4
  lifecycle.begin()
  const run = await until('over')
  assert.equal(run.state, 'inconclusive', run.reason)
  assert.match(
    run.reason,
    /^a rule of the gate could not be measured in stage 1, with fewer than 60 calls in each 1s: /,
  )
})

test('a gate that loses sight of the treatment ends the run without a pass', async () => {
  const stages = [
    { share: 0.25, duration: '2s' },
    { share: 0.5, duration: '1m' },
  ]
  const { lifecycle, rules, clock, until } = stage(specOf({ stages, gate: gateOf({ missing: '3s' }) }))
  lifecycle.begin()
  await until('stage', 1)
  await clock.advance(2_000)
  rules.isDeserted = true
  const desertedAt = clock.now()
  const run = await until('over')
  assert.equal(run.state, 'inconclusive', run.reason)
  assert.match(
    run.reason,
    /^a rule of the gate could not be measured for 4s, with fewer than 5 calls in each 1s: error_ratio/,
  )
  const closedAt = run.stages.at(-1)!.endedAtMs - desertedAt
  assert.ok(closedAt <= 5_500, `${closedAt} ms`)
})

test('a lasting defect leaves nothing armed, and ends the run', async () => {
  const { lifecycle, rules, done, heard, until } = stage()
  lifecycle.begin()
  await until('stage')
  rules.defect = 'no such breaker'
  const run = await until('over')
  assert.deepEqual(
    [run.state, run.reason],
    ['failed', 'internal error (a bug in Breakwater): no such breaker'],
  )
  assert.deepEqual([rules.armed, run.rollback?.armed, run.rollback?.arms], [false, [], []])
  assert.equal(done.at(-1), 'end')
  assert.equal(heard.at(-1)?.phase, 'over')
})

test('an order to stop that meets a defect leaves nothing armed, and ends the run', async () => {
  const { lifecycle, rules, until } = stage()
  lifecycle.begin()
  await until('stage')
  rules.defect = 'no such breaker'
  lifecycle.stop('ops', 'enough')
  const { state, reason, rollback } = lifecycle.record
  assert.deepEqual([state, reason], ['failed', 'internal error (a bug in Breakwater): no such breaker'])
  assert.deepEqual([rules.armed, rollback?.armed], [false, []])
})

test('a treatment of which no call ends any more is aborted', async () => {
  const { lifecycle, rules, meter, until } = stage()
  lifecycle.begin()
  await until('stage')
  rules.hangs = true
  const run = await until('over')
  assert.deepEqual(
    [run.state, run.reason],
    ['aborted', 'no call of the treatment has ended for 1s, and some are under way'],
  )
  assert.equal(meter.isStuck('treatment', 1_000), true)
})

test('a treatment with far more calls than its stage orders proves nothing, and is taken back', async () => {
  const { lifecycle, until } = stage(specOf({ stages: [{ share: 0.1, duration: '5s' }] }))
  lifecycle.begin()
  const run = await until('over')
  assert.equal(run.state, 'invalid')
  assert.match(run.reason, /^the treatment had \d+ of \d+ calls, and stage 1 orders 10%: there are too few/)
})

test('the gate goes on while a stage waits for the disk, and the wait is short', async () => {
  const never = new Promise<undefined>(() => undefined)
  const breached = stage()
  breached.lifecycle.begin()
  await breached.until('stage')
  breached.rules.written = () => never
  await breached.until('stage', 1)
  breached.rules.fares.treatment.failing = 1
  const run = await breached.until('over')
  assert.match(run.reason, /^error_ratio of treatment was/)
  const stuck = stage()
  stuck.lifecycle.begin()
  await stuck.until('baseline')
  stuck.rules.written = (now) => (now.phase === 'stage' ? never : Promise.resolve(undefined))
  const over = await stuck.until('over')
  assert.deepEqual(
    [over.state, over.reason],
    ['failed', 'the run could not be written to the journal within 2s'],
  )
  assert.equal(stuck.done.includes('arm 0'), false)
})

test('silence after the faults is invalid: nobody knows whether the steady state came back', async () => {
  const { lifecycle, rules, until } = stage()
  lifecycle.begin()
  await until('recovery')
  rules.callsPerTick = 0
  const run = await until('over')
  assert.deepEqual([run.state, run.reason], ['invalid', 'no call has ended for 1s after the faults'])
})
