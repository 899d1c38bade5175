import { randomFillSync } from 'node:crypto'

/** Random bytes are fetched by the page: one by one they would cost more than all else that is done per call. */
const PAGE = 4_096

/**
 * Random ids of spans and traces, in lower-case hexadecimal digits. They need no seed to be repeated by, as the
 * mesh's dice do, but must not collide with those of any other process: hence the system's random source.
 */
export class RandomIds {
  readonly #page = Buffer.allocUnsafe(PAGE)
  #at = PAGE

  /** 16 digits, not all of them 0. */
  span(): string {
    return this.#hex(8)
  }

  /** 32 digits, not all of them 0. */
  trace(): string {
    return this.#hex(16)
  }

  #hex(bytes: number): string {
    if (this.#at + bytes > PAGE) {
      randomFillSync(this.#page)
      this.#at = 0
    }
    const start = this.#at
    this.#at += bytes
    // The standards forbid an id of zeros only.
    this.#page[start] = (this.#page[start] ?? 0) | 1
    return this.#page.toString('hex', start, this.#at)
  }
}
