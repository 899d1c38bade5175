import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import { performance } from 'node:perf_hooks'
import type { Gateway } from './gateway.ts'
import { Noise } from './noise.ts'

/**
 * What a bystander's call may take at most while somebody else is hostile, in milliseconds, without the time in which the gateway, or the
 * test, had no CPU to run on; or three times what all else takes.
 */
const LONGEST_MS = 700

/**
 * Calls over and over while something goes on, at least once, and fails when a call takes too long. Returns what it saw,
 * in words. `call` rejects when its answer is not the one that it should have.
 */
export async function bystand(
  gateway: Gateway,
  call: () => Promise<unknown>,
  goingOn: () => Promise<unknown>,
): Promise<string> {
  // This process is slow by itself when it plays the hostile part, and the machine when others use it.
  const noise = new Noise(() => Promise.resolve(), 1)
  // The server that it calls is a part of the test.
  const waitedSoFar = () => withoutCpuMs(gateway.program.pid) + withoutCpuMs(process.pid)
  let over = false
  const ending = goingOn().finally(() => (over = true))
  let calls = 0
  let worst: { tookMs: number; boundMs: number; takenOffMs: number } | undefined
  const calling = async () => {
    do {
      const from = performance.now()
      const waitedMs = waitedSoFar()
      await call()
      const to = performance.now()
      const takenOffMs = waitedSoFar() - waitedMs
      const tookMs = to - from - takenOffMs
      calls++
      const boundMs = Math.max(LONGEST_MS, 3 * noise.between(from, to))
      if (worst === undefined || tookMs - boundMs > worst.tookMs - worst.boundMs)
        worst = { tookMs, boundMs, takenOffMs }
    } while (!over)
  }
  await Promise.all([ending, calling()]).finally(() => noise.stop())
  const { tookMs, boundMs, takenOffMs } = worst ?? assert.fail('it was over before a call was made')
  const seen = `${tookMs.toFixed()} of ${boundMs.toFixed()} ms, and ${takenOffMs.toFixed()} more without a CPU`
  assert.ok(tookMs <= boundMs, `a bystander waited for ${seen}`)
  return `${calls} calls, the slowest ${seen}`
}

/**
 * How long the first thread of a process, which is that of its event loop, has been ready to run while others ran, in milliseconds;
 * 0 where the system does not say so. Linux does (`sched-stats.rst`: the second number).
 */
function withoutCpuMs(pid: number): number {
  const file = `/proc/${pid}/schedstat`
  if (!existsSync(file)) return 0
  const [, waitedNs] = readFileSync(file, 'utf8').split(' ')
  return Number(waitedNs) / 1e6
}
