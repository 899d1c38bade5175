import { isAscii } from 'node:buffer'

/** Smallest chunk that is stored by itself, in bytes; smaller chunks are gathered in one buffer. */
const LARGE = 4_096

/** Smallest and largest buffer for gathering small chunks, in bytes. */
const LEAST = 64
const MOST = 64 * 1024

/**
 * Buffers bytes that come in chunks, and gathers small chunks in a growing buffer. A byte that comes alone then costs
 * one copy, instead of an object that keeps the socket's whole buffer in memory.
 */
export class Chunks {
  /** Number of bytes in all chunks. */
  length = 0
  #chunks: Buffer[] = []
  /** Buffer of the latest small chunks, which follow all of `#chunks`; its first `#used` bytes are filled. */
  #gathered: Buffer | undefined
  #used = 0

  /** `isAll`: no chunk follows, so the chunk is read soon and its socket buffer is not held long. */
  add(chunk: Buffer, isAll = false): void {
    const isFirst = this.length === 0
    this.length += chunk.length
    if (isAll && isFirst) return void this.#chunks.push(chunk)
    if (chunk.length < LARGE) return this.#gather(chunk)
    this.#seal()
    // A slice would keep the socket's whole buffer in memory.
    this.#chunks.push(chunk.buffer.byteLength > 2 * chunk.length ? copyOf(chunk) : chunk)
  }

  #gather(chunk: Buffer): void {
    const end = this.#used + chunk.length
    if (this.#gathered === undefined || end > this.#gathered.length) this.#makeRoom(chunk.length)
    chunk.copy(this.#gathered as Buffer, this.#used)
    this.#used += chunk.length
  }

  #makeRoom(bytes: number): void {
    if (this.#used + bytes > MOST) this.#seal()
    // Allocates outside of Node's pool: a small slice would keep the whole pool in memory.
    const room = Buffer.allocUnsafeSlow(Math.max(LEAST, Math.min(2 * (this.#used + bytes), MOST)))
    this.#gathered?.copy(room, 0, 0, this.#used)
    this.#gathered = room
  }

  #seal(): void {
    if (this.#gathered !== undefined) this.#chunks.push(this.#gathered.subarray(0, this.#used))
    this.#gathered = undefined
    this.#used = 0
  }

  /** Returns all bytes as text and empties the buffer. */
  take(): string {
    return textOf(this.takeBytes())
  }

  /** Returns all bytes in one buffer and empties this object. */
  takeBytes(): Buffer {
    const chunks = this.takeChunks()
    const [first] = chunks
    return chunks.length === 1 && first !== undefined ? first : Buffer.concat(chunks)
  }

  /** Returns the chunks in order and empties the buffer. No chunk is empty. */
  takeChunks(): Buffer[] {
    this.#seal()
    const chunks = this.#chunks
    this.#chunks = []
    this.length = 0
    return chunks
  }
}

/** Decodes UTF-8. Most large texts are pure ASCII, and decoding known ASCII is several times faster. */
export function textOf(bytes: Buffer): string {
  return bytes.length > MOST && isAscii(bytes) ? bytes.toString('latin1') : bytes.toString('utf8')
}

function copyOf(chunk: Buffer): Buffer {
  const copy = Buffer.allocUnsafeSlow(chunk.length)
  chunk.copy(copy)
  return copy
}
