import assert from 'node:assert/strict'
import { test } from 'node:test'
import { gameDayResult } from '../../src/gamedays/record.ts'
import { rehearsal } from './days.ts'

const breach = {
  rule: { metric: 'error_ratio', above: 0.1, of: 'treatment', for: 0 },
  value: 0.5,
  calls: 40,
  forMs: 0,
} as const

test('experiments run one after the other, each after its own pause', async () => {
  const { day, gateway, clock, states } = rehearsal()
  day.begin()
  await clock.advance(0)
  assert.deepEqual(states(), ['running', 'planned', 'planned'])
  gateway.end()
  await clock.advance(59_000)
  assert.deepEqual(states(), ['done', 'waiting', 'planned'])
  await clock.advance(1_000)
  gateway.end()
  await clock.advance(0)
  gateway.end()
  assert.equal(day.record.state, 'over')
  assert.deepEqual(gateway.begun, ['one', 'two', 'three'])
  await clock.advance(5_000)
  assert.equal(clock.pending, 0, 'no timer is left')
})

test('a pause ends the run and stops the timers, and the experiment begins anew', async () => {
  const { day, gateway, clock, states } = rehearsal()
  day.begin()
  await clock.advance(3_000)
  assert.deepEqual(day.pause('ops', 'a look'), { ok: true })
  assert.deepEqual(gateway.stopped, ['run-1'])
  assert.equal(clock.pending, 0)
  assert.deepEqual(states(), ['planned', 'planned', 'planned'])
  await clock.advance(3_600_000)
  assert.deepEqual(gateway.begun, ['one'])
  day.resume('ops')
  await clock.advance(0)
  assert.deepEqual(gateway.begun, ['one', 'one'])
  assert.deepEqual(day.record.steps[0]!.runs, ['run-1', 'run-2'])
  assert.equal(day.record.steps[0]!.result, undefined, 'the interrupted run is no result')
  const [pause] = day.record.pauses
  assert.equal(pause!.until! - pause!.from, 3_600_000)
})

test('a pause between experiments keeps what is left of the wait', async () => {
  const { day, gateway, clock } = rehearsal()
  day.begin()
  await clock.advance(0)
  gateway.end()
  await clock.advance(45_000)
  day.pause('ops', 'lunch')
  await clock.advance(3_600_000)
  day.resume('ops')
  await clock.advance(14_000)
  assert.deepEqual(gateway.begun, ['one'])
  await clock.advance(1_000)
  assert.deepEqual(gateway.begun, ['one', 'two'])
})

test('a run that begins after a pause is stopped at once', async () => {
  const { day, gateway, clock, states } = rehearsal()
  gateway.isSlow = true
  day.begin()
  day.pause('ops', 'too early')
  gateway.release()
  await clock.advance(0)
  assert.deepEqual(gateway.stopped, ['run-1'])
  assert.deepEqual(states(), ['planned', 'planned', 'planned'])
  assert.equal(day.record.state, 'paused')
})

test('a refused experiment pauses the GameDay with the reason', async () => {
  const { day, gateway, clock, states } = rehearsal()
  gateway.answers.push({ ok: false, refusals: ['the server a is protected'], isBusy: false })
  day.begin()
  await clock.advance(0)
  assert.equal(day.record.state, 'paused')
  assert.match(day.record.reason, /the experiment one was refused: the server a is protected/)
  assert.deepEqual(states(), ['planned', 'planned', 'planned'])
  day.resume('ops')
  await clock.advance(0)
  assert.deepEqual(gateway.begun, ['one'])
})

test('an experiment waits while another run occupies the gateway', async () => {
  const { day, gateway, clock, states } = rehearsal()
  gateway.answers.push({ ok: false, refusals: ['experiment "x" is running'], isBusy: true })
  day.begin()
  await clock.advance(0)
  assert.deepEqual(states(), ['waiting', 'planned', 'planned'])
  assert.equal(day.record.steps[0]!.note, 'experiment "x" is running')
  await clock.advance(2_000)
  assert.deepEqual(states(), ['running', 'planned', 'planned'])
})

test('a wait for another run changes the record once, however long it lasts', async () => {
  const { day, gateway, clock } = rehearsal()
  const busy = { ok: false, refusals: ['experiment "x" is running'], isBusy: true } as const
  gateway.answers.push(...Array.from({ length: 100 }, () => busy))
  day.begin()
  await clock.advance(10_000)
  const { changes } = gateway
  await clock.advance(120_000)
  assert.equal(gateway.changes, changes)
  await clock.advance(120_000)
  assert.deepEqual(gateway.begun, ['one'])
})

test('a run that cannot begin because of a defect pauses the GameDay', async () => {
  const { day, gateway, clock, states } = rehearsal()
  gateway.defect = 'no such thing'
  day.begin()
  await clock.advance(0)
  assert.equal(day.record.state, 'paused')
  assert.match(day.record.reason, /internal error \(a bug in Breakwater\): no such thing/)
  assert.deepEqual(states(), ['planned', 'planned', 'planned'])
})

test('a refusal that names thousands of servers is cut', async () => {
  const { day, gateway, clock } = rehearsal()
  const refusals = Array.from({ length: 5_000 }, (_, at) => `the server s${at} is outside of the scope`)
  gateway.answers.push({ ok: false, refusals, isBusy: false })
  day.begin()
  await clock.advance(0)
  assert.match(day.record.reason, /the server s0 is outside of the scope;.*; and 4990 more$/)
  assert.ok(JSON.stringify(day.record).length < 20_000)
})

test('an experiment that needs approval waits, and runs once approved', async () => {
  const { day, gateway, clock, states } = rehearsal()
  gateway.needsApproval = true
  day.begin()
  await clock.advance(60_000)
  assert.deepEqual(states(), ['waits for approval', 'planned', 'planned'])
  gateway.approve()
  await clock.advance(1_000)
  assert.deepEqual(states(), ['running', 'planned', 'planned'])
  gateway.end()
  assert.deepEqual(states(), ['done', 'waiting', 'planned'])
})

test('a breach of the gate is a result, and the next experiment follows', async () => {
  const { day, gateway, clock, states } = rehearsal()
  day.begin()
  await clock.advance(0)
  gateway.end({ state: 'aborted', breach })
  assert.deepEqual(states(), ['done', 'waiting', 'planned'])
  assert.equal(day.record.state, 'running')
})

test('a run that a person or the kill switch ends pauses the GameDay, and begins anew', async () => {
  const { day, gateway, clock, states } = rehearsal()
  day.begin()
  await clock.advance(0)
  gateway.end({ state: 'aborted', reason: 'the kill switch stopped it' })
  assert.equal(day.record.state, 'paused')
  assert.match(day.record.reason, /the kill switch stopped it/)
  assert.deepEqual(states(), ['planned', 'planned', 'planned'])
})

test('a run of somebody else changes nothing', async () => {
  const { day, gateway, clock, states } = rehearsal()
  day.begin()
  await clock.advance(0)
  day.ended({ ...gateway.active!, id: 'another', state: 'completed' })
  assert.deepEqual(states(), ['running', 'planned', 'planned'])
})

test('a skipped experiment ends at once and has no result', async () => {
  const { day, gateway, clock, states } = rehearsal()
  day.begin()
  await clock.advance(0)
  day.skip('ops', 'seen enough')
  assert.deepEqual(gateway.stopped, ['run-1'])
  assert.deepEqual(states(), ['skipped', 'waiting', 'planned'])
  day.skip('ops', 'no time')
  await clock.advance(0)
  assert.deepEqual(states(), ['skipped', 'skipped', 'running'])
  day.skip('ops', 'no time')
  assert.equal(day.record.state, 'over')
  assert.equal(gameDayResult(day.record).notRun, 3)
})

test('a condition of stop ends the GameDay and its run', async () => {
  const { day, gateway, clock, states } = rehearsal()
  day.begin()
  await clock.advance(5_000)
  gateway.stopWhy = 'error_ratio of the servers outside of the scope was 40%'
  await clock.advance(1_000)
  assert.equal(day.record.state, 'stopped')
  assert.equal(day.record.reason, gateway.stopWhy)
  assert.deepEqual(gateway.stopped, ['run-1'])
  assert.deepEqual(states(), ['planned', 'planned', 'planned'])
  assert.equal(clock.pending, 0)
  await clock.advance(600_000)
  assert.deepEqual(gateway.begun, ['one'])
})

test('a GameDay that is over takes observations and actions, and no orders', async () => {
  const { day, clock } = rehearsal()
  day.begin()
  await clock.advance(0)
  day.stop('ops', 'enough')
  for (const order of ['pause', 'skip', 'stop'] as const) assert.equal(day[order]('ops', 'again').ok, false)
  assert.equal(day.resume('ops').ok, false)
  assert.deepEqual(day.observe('ops', 'search was slow'), { ok: true })
  assert.deepEqual(day.addAction('ops', { what: 'tune', owner: 'team' }), { ok: true })
  assert.deepEqual(day.closeAction('ops', 1), { ok: true })
  assert.deepEqual(day.closeAction('ops', 1), { ok: false, why: 'action 1 is done already' })
  assert.deepEqual(day.closeAction('ops', 2), { ok: false, why: 'there is no action 2: there are 1' })
  assert.equal(gameDayResult(day.record).openActions, 0)
})

test('an observation names the experiment under way', async () => {
  const { day, gateway, clock } = rehearsal()
  day.begin()
  await clock.advance(0)
  day.observe('ops', 'slow')
  gateway.end()
  day.observe('ops', 'well again')
  assert.deepEqual(
    day.record.observations.map(({ text, step }) => [text, step]),
    [
      ['slow', 'one'],
      ['well again', undefined],
    ],
  )
})

test('a GameDay takes at most 500 observations', () => {
  const { day } = rehearsal()
  for (let at = 0; at < 500; at++) assert.equal(day.observe('ops', 'slow').ok, true)
  assert.deepEqual(day.observe('ops', 'slow'), { ok: false, why: 'a GameDay has at most 500 observations' })
})

test('the end of the gateway pauses the GameDay', async () => {
  const { day, gateway, clock } = rehearsal()
  day.begin()
  await clock.advance(0)
  day.close()
  assert.equal(day.record.reason, 'the gateway paused it: the gateway was stopped')
  assert.deepEqual(gateway.stopped, ['run-1'])
  assert.equal(clock.pending, 0)
})

test('the result counts verdicts, kept promises and the worst recovery', () => {
  const { day } = rehearsal()
  const of = (verdict: 'passed' | 'failed' | 'no evidence', recoveredMs?: number) => ({
    state: 'completed' as const,
    verdict,
    reasons: [],
    why: '',
    recoveredMs,
    rtoMs: 30_000,
    endedAt: 0,
  })
  const results = [of('passed', 10_000), of('failed'), of('no evidence', 99_000)]
  const steps = day.record.steps.map((step, at) => ({ ...step, result: results[at] }))
  assert.deepEqual(gameDayResult({ ...day.record, steps }), {
    verdicts: { passed: 1, 'held (weak)': 0, failed: 1, 'no evidence': 1 },
    notRun: 0,
    rtoMet: 1,
    rtoPromised: 2,
    worstRecoveryMs: 10_000,
    isOpen: true,
    openActions: 0,
  })
})

/** A small generator of pseudo-random numbers below `most`, so that a failure names its seed. */
const draws = (seed: number) => (most: number) => {
  seed = (Math.imul(seed, 1_664_525) + 1_013_904_223) >>> 0
  return Math.floor((seed / 2 ** 32) * most)
}

test('in any order of orders, one run is active at most, and none after a pause or the end', async () => {
  for (let seed = 1; seed <= 200; seed++) {
    const draw = draws(seed)
    const { day, gateway, clock } = rehearsal()
    day.begin()
    for (let turn = 0; turn < 40; turn++) {
      const { record } = day
      switch (draw(9)) {
        case 0:
          day.pause('ops', 'x')
          break
        case 1:
        case 2:
          day.resume('ops')
          break
        case 3:
          if (draw(3) === 0) day.skip('ops', 'x')
          break
        case 4:
          if (draw(20) === 0) day.stop('ops', 'x')
          break
        case 5:
          if (gateway.active !== undefined) gateway.end(draw(2) === 0 ? {} : { state: 'aborted' })
          break
        case 6:
          if (gateway.active === undefined)
            gateway.answers.push({ ok: false, refusals: ['no'], isBusy: draw(2) === 0 })
          break
        case 7:
          gateway.isSlow = !gateway.isSlow
          gateway.release()
          break
        default:
          await clock.advance([0, 1_000, 61_000][draw(3)]!)
      }
      assert.ok(record.events.length <= day.record.events.length)
    }
    gateway.isSlow = false
    gateway.release()
    await clock.advance(0)
    gateway.release()
    await clock.advance(0)
    const { state, steps } = day.record
    const here = `seed ${seed}: ${state} ${JSON.stringify(steps)}`
    if (state !== 'running') {
      assert.equal(gateway.active, undefined, here)
      assert.equal(clock.pending, 0, here)
      assert.ok(
        !steps.some((step) => ['running', 'waiting', 'waits for approval'].includes(step.state)),
        here,
      )
    }
    if (state === 'over')
      assert.ok(
        steps.every((step) => ['done', 'skipped'].includes(step.state)),
        here,
      )
    for (const step of steps) assert.equal(step.result !== undefined, step.state === 'done', here)
    if (gateway.active !== undefined) {
      const own = steps.filter((step) => step.state === 'running')
      assert.deepEqual(
        own.map((step) => step.runs.at(-1)),
        [gateway.active.id],
        here,
      )
    }
  }
})
