import assert from 'node:assert/strict'
import { test } from 'node:test'
import { LogThrottle } from '../../src/telemetry/log-throttle.ts'
import { ManualClock } from '../support/manual-clock.ts'

test('the throttle writes its number of lines a second, and the next line tells how many were left out', async () => {
  const clock = new ManualClock()
  const throttle = new LogThrottle(clock, 2)
  const written: number[] = []
  const babble = () => throttle.admit((dropped) => written.push(dropped))
  for (let i = 0; i < 5; i++) babble()
  assert.deepEqual(written, [0, 0])
  await clock.advance(1_000)
  for (let i = 0; i < 3; i++) babble()
  assert.deepEqual(written, [0, 0, 3, 0])
  await clock.advance(5_000)
  babble()
  assert.deepEqual(written.at(-1), 1)
})
