import { randomFillSync } from 'node:crypto'

/** Random bytes are fetched by the page: one by one they would cost more than all else that is done per call. */
const PAGE = 4_096

/** Digits of 8 bytes: ids are one or two of these. */
const UNIT = 16

/**
 * Random ids of spans and traces, in lower-case hexadecimal digits. They need no seed to be repeated by, as the
 * mesh's dice do, but must not collide with those of any other process: hence the system's random source.
 */
export class RandomIds {
  readonly #page = Buffer.allocUnsafe(PAGE)
  #digits = ''
  #at = 0

  /** 16 digits, not all of them 0. */
  span(): string {
    return this.#take(UNIT)
  }

  /** 32 digits, not all of them 0. */
  trace(): string {
    return this.#take(2 * UNIT)
  }

  #take(length: number): string {
    if (this.#at + length > this.#digits.length) this.#refill()
    return this.#digits.slice(this.#at, (this.#at += length))
  }

  #refill(): void {
    randomFillSync(this.#page)
    // The standards forbid an id of zeros only.
    for (let at = 0; at < PAGE; at += UNIT / 2) this.#page[at]! |= 1
    this.#digits = this.#page.toString('hex')
    this.#at = 0
  }
}
