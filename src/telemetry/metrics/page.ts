/** UTF-8 takes at most so many bytes for each unit of a string. */
const MOST_BYTES = 3

/**
 * A text that grows, encoded piece by piece: a text of megabytes at once would be a stall, and many buffers, put
 * together in the end, are a second copy of it.
 */
export class Page {
  #bytes: Buffer
  #length = 0

  /** `expected` is how long it is likely to become, in bytes. */
  constructor(expected: number) {
    this.#bytes = Buffer.allocUnsafe(expected)
  }

  add(text: string): void {
    const needed = this.#length + text.length * MOST_BYTES
    if (needed > this.#bytes.length) this.#bytes = Buffer.concat([this.#bytes], 2 * needed)
    this.#length += this.#bytes.write(text, this.#length)
  }

  /** What was added so far. */
  get bytes(): Buffer {
    return this.#bytes.subarray(0, this.#length)
  }
}
