import assert from 'node:assert/strict'
import { test } from 'node:test'
import { compareReplays, judged, recordLive } from '../../bench/replay-stage.ts'
import type { Interval } from '../../src/experiments/statistics/unit-estimates.ts'

const RUN_MS = 12_000

/**
 * Attempts have the default timeout of a minute under both policies, longer than anything takes. On a stalled machine a
 * shorter timer would fire later than in simulation, and hit other attempts. For attempts cut short, see
 * `test/sim/replay`.
 */
const retrying = { name: 'retrying', defaults: { retry: { maxRetries: 2, base: '20ms', cap: '200ms' } } }
const once = { name: 'once', defaults: { retry: { maxRetries: 0 } } }

/**
 * A test must not fail once in a hundred runs, so the 95 % intervals are widened to 99.9 % of a normal distribution.
 */
const WIDER = 1.68

function assertWithin({ estimate, low, high }: Interval, value: number, what: string): void {
  const [from, to] = [estimate - WIDER * (estimate - low), estimate + WIDER * (high - estimate)]
  // Allows for rounding.
  const isWithin = value >= from - 1e-9 && value <= to + 1e-9
  assert.ok(isWithin, `${what}: ${value} is not within ${from} to ${to}`)
}

test('a replay reproduces a recording of live traffic, and under other policies matches a live run', async () => {
  // Both run at the same time in one process, so stalls of the machine hit both.
  const [recording, other] = await Promise.all([recordLive(retrying, RUN_MS, 1), recordLive(once, RUN_MS, 1)])
  const { recorded, replayed, difference } = await compareReplays(recording, [retrying, once])
  const [same, predicted] = replayed
  assert.ok(recording.calls.length > 300, `${recording.calls.length}`)
  for (const figure of judged)
    assertWithin(recorded.figures[figure], same!.figures[figure].estimate, `${figure} with retries`)
  // The recorded retries helped, and the replay without retries shows the loss.
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
