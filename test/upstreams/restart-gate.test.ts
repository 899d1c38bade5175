import assert from 'node:assert/strict'
import { test } from 'node:test'
import { RestartGate } from '../../src/upstreams/stdio/stdio.ts'
import { ManualClock } from '../support/manual-clock.ts'

test('the first start does not wait', () => {
  assert.equal(new RestartGate(new ManualClock()).waitMs, 0)
})

test('each crash doubles the pause, up to thirty seconds', async () => {
  const clock = new ManualClock()
  const gate = new RestartGate(clock)
  const pauses: number[] = []
  for (let i = 0; i < 7; i++) {
    gate.started()
    gate.crashed()
    pauses.push(gate.waitMs)
    await clock.advance(gate.waitMs)
    assert.equal(gate.waitMs, 0)
  }
  assert.deepEqual(pauses, [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000])
})

test('the pause shrinks as time passes', async () => {
  const clock = new ManualClock()
  const gate = new RestartGate(clock)
  gate.started()
  gate.crashed()
  await clock.advance(400)
  assert.equal(gate.waitMs, 600)
})

test('a process that stayed up for thirty seconds begins anew', async () => {
  const clock = new ManualClock()
  const gate = new RestartGate(clock)
  for (let i = 0; i < 4; i++) {
    gate.started()
    gate.crashed()
  }
  gate.started()
  await clock.advance(29_999)
  gate.crashed()
  assert.equal(gate.waitMs, 16_000)
  gate.started()
  await clock.advance(30_000)
  gate.crashed()
  assert.equal(gate.waitMs, 1_000)
})

test('a process that has answered a tool call begins anew', () => {
  const gate = new RestartGate(new ManualClock())
  for (const [hasWorked, waitMs] of [
    [false, 1_000],
    [false, 2_000],
    [true, 1_000],
    [true, 1_000],
    [false, 2_000],
  ] as const) {
    gate.started()
    gate.crashed(hasWorked)
    assert.equal(gate.waitMs, waitMs)
  }
})
