import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Cancellation } from '../../src/mesh/cancel.ts'
import { VirtualClock } from '../../src/sim/virtual-clock.ts'

test('timers fire in the order of their time, and of equal times in the order in which they were set', async () => {
  const clock = new VirtualClock()
  const fired: string[] = []
  const last = new Promise<void>((resolve) => {
    clock.after(30, () => (fired.push(`c at ${clock.now()}`), resolve()))
  })
  clock.after(10, () => fired.push(`a at ${clock.now()}`))
  clock.after(20, () => fired.push('b'))
  clock.after(20, () => fired.push('b2'))
  await clock.run(last)
  assert.deepEqual(fired, ['a at 10', 'b', 'b2', 'c at 30'])
})

test('follow-ups of a timer are over before the next timer fires, with any number of promises', async () => {
  const clock = new VirtualClock()
  const seen: string[] = []
  clock.after(1, () => {
    void (async () => {
      for (let i = 0; i < 100; i++) await Promise.resolve()
      seen.push(`chain at ${clock.now()}`)
    })()
  })
  await clock.run(clock.sleep(1.5, new Cancellation()).then(() => void seen.push(`timer at ${clock.now()}`)))
  assert.deepEqual(seen, ['chain at 1', 'timer at 1.5'])
})

test('a timer that was taken back does not fire, and time does not pass for it', async () => {
  const clock = new VirtualClock()
  clock.after(5, () => assert.fail('the timer was cancelled'))()
  await clock.run(clock.sleep(3, new Cancellation()))
  assert.equal(clock.now(), 3)
  await assert.rejects(clock.run(new Promise(() => undefined)), /no timer is left/)
  assert.equal(clock.now(), 3)
})

test('ten thousand timers in any order fire in the right one', async () => {
  const clock = new VirtualClock()
  const at = Array.from({ length: 10_000 }, (_, i) => (i * 7_919) % 10_007)
  const fired: number[] = []
  const cancels = at.map((ms) => clock.after(ms, () => fired.push(ms)))
  for (let i = 0; i < cancels.length; i += 3) cancels[i]!()
  await clock.run(clock.sleep(20_000, new Cancellation()))
  const kept = at.filter((_, i) => i % 3 !== 0)
  assert.deepEqual(
    fired,
    kept.sort((a, b) => a - b),
  )
  assert.equal(clock.pending, 0)
})

test('timers that were taken back are cleared away, and a timer that was run is not taken back', async () => {
  const clock = new VirtualClock()
  const fired: number[] = []
  const cancels = Array.from({ length: 3_000 }, (_, i) => clock.after(i % 977, () => fired.push(i)))
  const kept = clock.after(2_000, () => fired.push(-1))
  await clock.run(clock.sleep(0, new Cancellation()))
  const [...atOnce] = fired
  for (const cancel of cancels) cancel()
  assert.ok(clock.pending < 300, `${clock.pending} are left`)
  await clock.run(clock.sleep(3_000, new Cancellation()))
  assert.deepEqual(fired, [...atOnce, -1])
  kept()
  assert.equal(clock.pending, 0)
})

test('a timer without an end is never due, and a rejection of the work is that of the run', async () => {
  const clock = new VirtualClock()
  clock.after(Infinity, () => assert.fail('never'))
  assert.equal(clock.pending, 0)
  const failing = clock.sleep(1, new Cancellation()).then(() => Promise.reject(new Error('ours')))
  await assert.rejects(clock.run(failing), /ours/)
})

test('wall time begins at the epoch, and passes with the other one', async () => {
  const clock = new VirtualClock(1_000)
  await clock.run(clock.sleep(250, new Cancellation()))
  assert.equal(clock.wall(), 1_250)
})
