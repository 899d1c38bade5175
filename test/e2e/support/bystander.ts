import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import { performance } from 'node:perf_hooks'
import type { Gateway } from './gateway.ts'
import { Noise } from './noise.ts'

/**
 * Longest call of a bystander beside a hostile peer, in milliseconds, or three times the machine's noise. Time without
 * a CPU, for the gateway or the test, does not count.
 */
const LONGEST_MS = 700

/**
 * Calls repeatedly while something goes on, at least once; fails when a call takes too long. Returns a summary. `call`
 * rejects on a wrong answer.
 */
export async function bystand(
  gateway: Gateway,
  call: () => Promise<unknown>,
  goingOn: () => Promise<unknown>,
): Promise<string> {
  // This process is slow itself when it plays the hostile part; the machine is slow when others use it.
  const noise = new Noise(() => Promise.resolve(), 1)
  // The bystander's server is part of the test.
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
  const { tookMs, boundMs, takenOffMs } = worst ?? assert.fail('the attack was over before a call')
  const seen = `${tookMs.toFixed()} of ${boundMs.toFixed()} ms, and ${takenOffMs.toFixed()} more without a CPU`
  assert.ok(tookMs <= boundMs, `a bystander waited for ${seen}`)
  return `${calls} calls, the slowest ${seen}`
}

/**
 * Returns for how long a process's first thread, which runs its event loop, was ready but without a CPU, in
 * milliseconds. Linux: the second number of `schedstat` (`sched-stats.rst`); 0 elsewhere.
 */
function withoutCpuMs(pid: number): number {
  const file = `/proc/${pid}/schedstat`
  if (!existsSync(file)) return 0
  const [, waitedNs] = readFileSync(file, 'utf8').split(' ')
  return Number(waitedNs) / 1e6
}
