import type { Clock, Millis } from '../../mesh/clock.ts'

/** After the first crash, in milliseconds; each further one doubles it. */
const FIRST_PAUSE_MS = 1_000
const LONGEST_PAUSE_MS = 30_000

/** A process that stayed up for so long was not in a crash loop, in milliseconds. */
const STABLE_MS = 30_000

/** Says when a process that crashed may be started again. Waits for nothing itself. */
export class RestartGate {
  readonly #clock: Clock
  #startedAt: Millis = 0
  #pauseMs: Millis = 0
  #opensAt: Millis = -Infinity

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** How long the next start has to wait, in milliseconds; 0 when it may go ahead. */
  get waitMs(): Millis {
    return Math.max(0, this.#opensAt - this.#clock.now())
  }

  /** The process was started. */
  started(): void {
    this.#startedAt = this.#clock.now()
  }

  /** It ended without being asked to, or never got through its handshake. */
  crashed(): void {
    const now = this.#clock.now()
    const stable = now - this.#startedAt >= STABLE_MS
    this.#pauseMs =
      stable || this.#pauseMs === 0 ? FIRST_PAUSE_MS : Math.min(this.#pauseMs * 2, LONGEST_PAUSE_MS)
    this.#opensAt = now + this.#pauseMs
  }
}
