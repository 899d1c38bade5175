import { systemClock } from '../../mesh/clock.ts'

/** How long the process may live after everything is closed, in milliseconds. */
const LINGER_MS = 500

/**
 * Ends the process after half a second, unless it ends earlier. Otherwise unread output, or a span exporter whose
 * collector does not answer, could keep the process alive for ever.
 */
export function exitSoon(code: number): void {
  systemClock.after(LINGER_MS, () => process.exit(code))
}
