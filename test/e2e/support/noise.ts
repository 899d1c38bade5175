import { performance } from 'node:perf_hooks'
import { setTimeout } from 'node:timers/promises'

const TICK_MS = 5

interface Span {
  readonly from: number
  readonly to: number
}

/**
 * The current delays of this machine, measured all the time. There are late timers of the test process, and durations
 * of a control call without any wait. A longer delay has another cause.
 */
export class Noise {
  readonly #spans: Span[] = []
  #stopped = false
  readonly #loops: Promise<void>[]

  /** `control` resolves as fast as the machine allows; `atOnce` of them run concurrently. */
  constructor(control: () => Promise<unknown>, atOnce = 2) {
    const measured = async (task: () => Promise<unknown>, leastMs: number) => {
      while (!this.#stopped) {
        const from = performance.now()
        await task()
        const to = performance.now()
        this.#spans.push({ from: from + leastMs, to })
        if (leastMs === 0) await setTimeout(TICK_MS)
      }
    }
    this.#loops = [
      measured(() => setTimeout(TICK_MS), TICK_MS),
      ...Array.from({ length: atOnce }, () => measured(control, 0)),
    ]
  }

  async stop(): Promise<void> {
    this.#stopped = true
    await Promise.all(this.#loops)
  }

  /** Returns the longest delay between two instants, in milliseconds. */
  between(from: number, to: number): number {
    let longest = 0
    for (const span of this.#spans)
      if (span.from <= to && span.to >= from) longest = Math.max(longest, span.to - span.from)
    return longest
  }

  /** Returns a quantile of all delays, in milliseconds. */
  quantile(q: number): number {
    const delays = this.#spans.map(({ from, to }) => to - from).sort((a, b) => a - b)
    return delays[Math.min(delays.length - 1, Math.floor(q * delays.length))] ?? 0
  }
}
