import assert from 'node:assert/strict'
import { test } from 'node:test'
import { compareReplays, judged, recordLive } from '../../bench/replay-stage.ts'
import type { Interval } from '../../src/experiments/statistics/unit-estimates.ts'

const RUN_MS = 12_000

/**
 * Under both, attempts have the minute of the default, which is longer than anything takes, also on a machine that is held up: there a
 * timer ends an attempt later than a simulated one does, and decides about others than it would have. What a replay makes of attempts
 * that were cut short is for `test/sim/replay` to say.
 */
const retrying = { name: 'retrying', defaults: { retry: { maxRetries: 2, base: '20ms', cap: '200ms' } } }
const once = { name: 'once', defaults: { retry: { maxRetries: 0 } } }

/** A test that fails once in a hundred runs is no test: intervals of 95 % are widened to what are 99.9 % of a normal distribution. */
const WIDER = 1.68

function assertWithin({ estimate, low, high }: Interval, value: number, what: string): void {
  const [from, to] = [estimate - WIDER * (estimate - low), estimate + WIDER * (high - estimate)]
  // Of numbers that differ by rounding alone.
  const isWithin = value >= from - 1e-9 && value <= to + 1e-9
  assert.ok(isWithin, `${what}: ${value} is not within ${from} to ${to}`)
}

test('a recording of live traffic, played again, is what it was; and under other policies what a live run is', async () => {
  // The same tasks at the same time and in one process: whatever holds the machine up holds up both.
  const [recording, other] = await Promise.all([recordLive(retrying, RUN_MS, 1), recordLive(once, RUN_MS, 1)])
  const { recorded, replayed, difference } = await compareReplays(recording, [retrying, once])
  const [same, predicted] = replayed
  assert.ok(recording.calls.length > 300, `${recording.calls.length}`)
  for (const figure of judged)
    assertWithin(recorded.figures[figure], same!.figures[figure].estimate, `${figure} with retries`)
  // Retries were of use, which the replay without them shows.
  assert.ok(recorded.figures.retries.estimate > 0.05)
  assert.ok(difference!.figures.tcsr.high < 0, JSON.stringify(difference!.figures.tcsr))

  const live = await compareReplays(other, [once])
  for (const figure of judged)
    assertWithin(
      predicted!.figures[figure],
      live.recorded.figures[figure].estimate,
      `${figure} without retries`,
    )
})
