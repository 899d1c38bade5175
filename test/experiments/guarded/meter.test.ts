import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Meter } from '../../../src/experiments/guarded/meter.ts'
import { ManualClock } from '../../support/manual-clock.ts'

const ended = (tookMs: number, isWrong = false) => ({
  isWrong,
  isRejected: false,
  attempts: 1,
  rejections: [],
  tookMs,
})

/** A call without retries. */
const once = () => 0

function stage() {
  const clock = new ManualClock()
  const meter = new Meter(clock)
  const call = (arm: string, tookMs: number, isWrong = false) =>
    meter.end(meter.begin(arm, once), ended(tookMs, isWrong))
  return { clock, meter, call }
}

test('quantiles are within 1 % of the truth', () => {
  const { meter, call } = stage()
  for (let ms = 1; ms <= 1_000; ms++) call('treatment', ms)
  const { calls, p50, p95, p99, mean } = meter.over('treatment', 5_000)
  assert.equal(calls, 1_000)
  for (const [found, truth] of [
    [p50, 500],
    [p95, 950],
    [p99, 990],
    [mean, 500.5],
  ] as const)
    assert.ok(Math.abs(found! - truth) <= 0.011 * truth, `${found} for ${truth}`)
})

test('the window slides, arms are apart, and a cut begins anew', async () => {
  const { clock, meter, call } = stage()
  call('control', 5)
  call('treatment', 5, true)
  await clock.advance(3_000)
  call('treatment', 5)
  assert.deepEqual([meter.over('treatment', 1_000).failed, meter.over('treatment', 5_000).failed], [0, 1])
  assert.equal(meter.over('control', 5_000).calls, 1)
  assert.equal(meter.since('treatment').calls, 2)
  meter.cut()
  assert.equal(meter.since('treatment').calls, 0)
})

test('a hanging call is slow, and neither a success nor a failure: durations alone count hanging calls', async () => {
  const { clock, meter } = stage()
  const hanging = meter.begin('treatment', once)
  meter.begin('control', once)
  await clock.advance(2_000)
  assert.equal(meter.over('treatment', 2_500).waiting, 0)
  await clock.advance(3_000)
  const { calls, waiting, failed, p95 } = meter.over('treatment', 5_000)
  assert.deepEqual([calls, waiting, failed], [0, 1, 0])
  assert.ok(p95! > 4_900)
  assert.deepEqual([meter.since('treatment').waiting, meter.since('treatment', 5_000).waiting], [0, 1])
  meter.end(hanging, undefined)
  assert.equal(meter.over('treatment', 5_000).waiting, 0, 'a caller’s own error says nothing')
})

test('an arm is stuck when a call is under way and no call has ended meanwhile', async () => {
  const { clock, meter, call } = stage()
  meter.begin('treatment', once)
  await clock.advance(999)
  call('control', 1)
  assert.equal(meter.isStuck('treatment', 1_000), false)
  await clock.advance(1)
  assert.deepEqual([meter.isStuck('treatment', 1_000), meter.isStuck('control', 1_000)], [true, false])
  call('treatment', 1)
  assert.equal(meter.isStuck('treatment', 1_000), false)
})

test('slices older than the span are forgotten', async () => {
  const { clock, meter, call } = stage()
  for (let at = 0; at < 400; at++) {
    call('all', 1)
    await clock.advance(250)
  }
  assert.ok(meter.over('all', 3_600_000).calls <= 242)
})

test('the first effect is that of the earliest call, and a few traces are kept', () => {
  const { meter } = stage()
  meter.affected(500, 'a')
  meter.affected(200, undefined)
  for (let n = 0; n < 30; n++) meter.affected(900, `t${n}`)
  assert.equal(meter.firstEffectAt, 200)
  assert.equal(meter.traces.length, 10)
})

test('a tally that absorbs an earlier tally counts a running call once, at its current length', () => {
  const clock = new ManualClock()
  const meter = new Meter(clock)
  meter.begin('treatment', once)
  const rows = Array.from({ length: 8 }, () => {
    void clock.advance(1_000)
    meter.end(meter.begin('treatment', once), { ...ended(10), rejections: ['rate_limited'] })
    return meter.take('treatment', 1_000)
  })
  const joined = rows.reduce((earlier, next) => (next.merge(earlier), next)).figures()
  assert.deepEqual([joined.calls, joined.waiting], [8, 1])
  assert.deepEqual(joined.rejections, { rate_limited: 8 })
  assert.ok(joined.p50! < 11, `${joined.p50} ms`)
  assert.ok(Math.abs(joined.mean! - (8 * 10 + 8_000) / 9) < 10, `${joined.mean} ms`)
})

test('a row counts retries in the second of their end, although their call ends later', async () => {
  const { clock, meter } = stage()
  let retries = 0
  const measured = meter.begin('treatment', () => retries)
  const taken = () => {
    const { begun, retries: counted, calls } = meter.take('treatment', Infinity)
    return [begun, counted, calls]
  }
  assert.deepEqual(taken(), [1, 0, 0])
  await clock.advance(1_000)
  retries = 3
  assert.deepEqual(taken(), [0, 3, 0])
  retries = 4
  meter.end(measured, ended(2_000))
  assert.deepEqual(taken(), [0, 1, 1])
  retries = 1
  const later = meter.begin('treatment', () => retries)
  meter.cut()
  retries = 3
  meter.end(later, ended(1))
  assert.deepEqual(taken(), [0, 2, 1])
})
