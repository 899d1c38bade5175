import type { Millis } from '../../mesh/clock.ts'

/** How far one answer moves it: down quickly, up slowly, so that it stays with the fast replica. */
const DOWN = 0.2
const UP = 0.02

/** A millisecond more or less says nothing about a replica. */
const NOISE_MS = 1

/** How long a tool usually takes, on whichever replica: what makes the times of different tools comparable. */
export class UsualTime {
  #ms: Millis | undefined

  /** Takes in how long an answer took. */
  add(ms: Millis): void {
    if (this.#ms === undefined) this.#ms = ms
    else this.#ms += (ms < this.#ms ? DOWN : UP) * (ms - this.#ms)
  }

  /** How many times of the usual a duration is; 1 when nothing is known. */
  slownessOf(ms: Millis): number {
    return this.#ms === undefined ? 1 : (ms + NOISE_MS) / (this.#ms + NOISE_MS)
  }
}
