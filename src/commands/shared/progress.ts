import type { Cancel, Clock, Millis } from '../../mesh/clock.ts'
import { formatDuration } from '../../units/duration.ts'
import type { Output } from './arguments.ts'

/** A step that ends within this time shows no progress, in milliseconds. */
const PATIENCE_MS: Millis = 2_000

/** How often a line on a terminal is brought up to date, and how often another one is written where there is none. */
const TICK_MS: Millis = 1_000
const PLAIN_MS: Millis = 10_000

/** Whole seconds: `23s`. */
export const seconds = (ms: Millis): string => formatDuration(Math.round(ms / 1_000) * 1_000)

/** How much of a whole is done, as a ratio: `[#####---------------]`. */
export function bar(done: number, cells = 20): string {
  const filled = Math.round(cells * Math.min(1, Math.max(0, done)))
  return `[${'#'.repeat(filled)}${'-'.repeat(cells - filled)}]`
}

/**
 * Says how something goes that takes longer than 2 s: on a terminal in one line that is brought up to date every second, and
 * goes with it; elsewhere in plain lines on standard error, the first after 10 s. `words` gets the time that has passed, and
 * gives undefined while there is nothing to say. Returns how to end it.
 */
export function showProgress(
  out: Output,
  clock: Pick<Clock, 'now' | 'after'>,
  words: (ms: Millis) => string | undefined,
): Cancel {
  const since = clock.now()
  const { status } = out
  let cancel: Cancel
  const wait = (ms: Millis) => (cancel = clock.after(ms, tell))
  function tell(): void {
    const line = words(clock.now() - since)
    if (status !== undefined) status(line)
    else if (line !== undefined) out.stderr(`breakwater: ${line}`)
    wait(status === undefined ? PLAIN_MS : TICK_MS)
  }
  wait(status === undefined ? PLAIN_MS : PATIENCE_MS)
  return () => {
    cancel()
    status?.(undefined)
  }
}
