import { systemClock } from '../../mesh/clock.ts'

/** How long the process may live after everything is closed, in milliseconds. */
const LINGER_MS = 500

/**
 * Ends the process after half a second, unless it ends earlier: unread output, or a span exporter with a silent
 * collector, would keep the process alive forever.
 */
export function exitSoon(code: number): void {
  systemClock.after(LINGER_MS, () => process.exit(code))
}
