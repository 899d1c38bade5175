/**
 * Goes into the gateway's process by `--import`, and answers every message of its parent with how long the event
 * loop did not turn since the last one.
 */
import { monitorEventLoopDelay } from 'node:perf_hooks'

export interface Stall {
  /** Longest time between two turns, in milliseconds; up to 2 of them are the timer's that measures it. */
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
