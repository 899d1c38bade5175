import assert from 'node:assert/strict'
import { performance } from 'node:perf_hooks'
import { Noise } from './noise.ts'

/** What a bystander's call may take at most while somebody else is hostile, in milliseconds, or three times what all else takes. */
const LONGEST_MS = 700

/**
 * Calls over and over while something goes on, at least once, and fails when a call takes too long. Returns what it saw,
 * in words. `call` rejects when its answer is not the one that it should have.
 */
export async function bystand(
  call: () => Promise<unknown>,
  goingOn: () => Promise<unknown>,
): Promise<string> {
  // This process is slow by itself when it plays the hostile part, and the machine when others use it.
  const noise = new Noise(() => Promise.resolve(), 1)
  let over = false
  const ending = goingOn().finally(() => (over = true))
  let calls = 0
  let worst = { tookMs: 0, boundMs: LONGEST_MS }
  const calling = async () => {
    do {
      const from = performance.now()
      await call()
      const to = performance.now()
      calls++
      const boundMs = Math.max(LONGEST_MS, 3 * noise.between(from, to))
      if (to - from - boundMs > worst.tookMs - worst.boundMs || worst.tookMs === 0)
        worst = { tookMs: to - from, boundMs }
    } while (!over)
  }
  await Promise.all([ending, calling()]).finally(() => noise.stop())
  assert.ok(worst.tookMs <= worst.boundMs, `a bystander waited for ${worst.tookMs.toFixed()} ms`)
  return `${calls} calls, the slowest ${worst.tookMs.toFixed()} of ${worst.boundMs.toFixed()} ms`
}
