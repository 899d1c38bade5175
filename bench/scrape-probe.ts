/** Preloaded into the gateway by `--import`. Answers each message with the longest event loop stall since the last. */
import { monitorEventLoopDelay } from 'node:perf_hooks'

export interface Stall {
  /** Longest time between two turns, in milliseconds. Up to 2 ms of the time belong to the measuring timer. */
  readonly maxMs: number
}

const delays = monitorEventLoopDelay({ resolution: 1 })
delays.enable()

process.on('message', () => {
  const stall: Stall = { maxMs: delays.max / 1e6 }
  delays.reset()
  process.send?.(stall)
})
process.channel?.unref()
