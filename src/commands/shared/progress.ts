import type { Cancel, Clock, Millis } from '../../mesh/clock.ts'
import { formatDuration } from '../../units/duration.ts'
import type { Output } from './arguments.ts'

/** Progress is shown only for steps that take longer than this, in milliseconds. */
const PATIENCE_MS: Millis = 2_000

/** Update interval on a terminal, and interval of plain lines elsewhere. */
const TICK_MS: Millis = 1_000
const PLAIN_MS: Millis = 10_000

/** Formats a duration in whole seconds: `23s`. */
export const seconds = (ms: Millis): string => formatDuration(Math.round(ms / 1_000) * 1_000)

/** Formats a ratio as a bar: `[#####---------------]`. */
export function bar(done: number, cells = 20): string {
  const filled = Math.round(cells * Math.min(1, Math.max(0, done)))
  return `[${'#'.repeat(filled)}${'-'.repeat(cells - filled)}]`
}

/**
 * Shows progress after 2 s. On a terminal, updates a line every second, and removes it at the end. Elsewhere, prints
 * lines on standard error, the first after 10 s. `words` gets the elapsed time, and returns undefined for no line.
 * Returns a function to end the display.
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
