import { systemClock } from '../../mesh/clock.ts'

/** How long the process may go on when all is closed, in milliseconds. */
const LINGER_MS = 500

/**
 * Ends the process in half a second, unless it has ended by itself before: output that nobody reads keeps it for ever, and so does an
 * exporter of spans, which cannot be told to give up on a collector that does not answer.
 */
export function exitSoon(code: number): void {
  systemClock.after(LINGER_MS, () => process.exit(code))
}
