/** From which size on a chunk is kept as it came, in bytes. */
const LARGE = 4_096

/**
 * Bytes that come in chunks. Small ones are joined with their neighbours, like the digits of a binary counter: whoever sends
 * one byte at a time costs a few copies of it, and not an object for each, with the socket's whole buffer behind it.
 */
export class Chunks {
  /** How many bytes they are. */
  length = 0
  #chunks: Buffer[] = []

  /** `isAll`: nothing is to follow, so that what the chunk is a piece of is not kept for long. */
  add(chunk: Buffer, isAll = false): void {
    const chunks = this.#chunks
    this.length += chunk.length
    if (isAll && chunks.length === 0) return void chunks.push(chunk)
    let last = chunk
    while (last.length < LARGE) {
      const before = chunks.at(-1)
      if (before === undefined || before.length > last.length) break
      chunks.pop()
      // Not out of a pool, of which a small piece would keep the whole.
      const joined = Buffer.allocUnsafeSlow(before.length + last.length)
      before.copy(joined)
      last.copy(joined, before.length)
      last = joined
    }
    // A piece of a socket's buffer would keep the whole of it.
    chunks.push(last === chunk && chunk.buffer.byteLength > 2 * chunk.length ? copyOf(chunk) : last)
  }

  /** All of them as text, once: they are gone then. */
  take(): string {
    return this.takeBytes().toString('utf8')
  }

  /** All of them in one, once: they are gone then. */
  takeBytes(): Buffer {
    const chunks = this.#chunks
    const [first] = chunks
    this.#chunks = []
    this.length = 0
    return chunks.length === 1 && first !== undefined ? first : Buffer.concat(chunks)
  }
}

function copyOf(chunk: Buffer): Buffer {
  const copy = Buffer.allocUnsafeSlow(chunk.length)
  chunk.copy(copy)
  return copy
}
