import type { Clock } from '../mesh/clock.ts'
import { LogThrottle } from '../telemetry/log-throttle.ts'
import type { Log } from '../telemetry/log.ts'
import { beginningOf, type Conceal } from './server-words.ts'

/**
 * Least interval between log entries, in milliseconds, and most logged characters of an unreadable message. A server
 * may write such output all day.
 */
const EVERY_MS = 60_000
const EXCERPT = 200

/** Logs a server's unreadable messages. */
export class Skipped {
  readonly #log: Log
  readonly #throttle: LogThrottle

  constructor(clock: Clock, log: Log) {
    this.#log = log
    this.#throttle = new LogThrottle(clock, 1, EVERY_MS)
  }

  add(text: string, conceal: Conceal): void {
    this.#throttle.admit((dropped) => {
      const excerpt = beginningOf(text, conceal, EXCERPT)
      this.#log.warn({ excerpt, dropped }, 'skipped output that is not JSON-RPC')
    })
  }
}
