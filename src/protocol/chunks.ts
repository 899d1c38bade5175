import { isAscii } from 'node:buffer'

/** From which size on a chunk is kept as it came, in bytes. */
const LARGE = 4_096

/** Smallest and largest buffer in which small chunks are gathered, in bytes. */
const LEAST = 64
const MOST = 64 * 1024

/**
 * Bytes that come in chunks. Small ones are gathered in a buffer that grows: whoever sends one byte at a time costs a copy
 * of each, and not an object with the socket's whole buffer behind it.
 */
export class Chunks {
  /** How many bytes they are. */
  length = 0
  #chunks: Buffer[] = []
  /** Small chunks, which come after all others: so much of it is used. */
  #gathered: Buffer | undefined
  #used = 0

  /** `isAll`: nothing is to follow, so that what the chunk is a piece of is not kept for long. */
  add(chunk: Buffer, isAll = false): void {
    const isFirst = this.length === 0
    this.length += chunk.length
    if (isAll && isFirst) return void this.#chunks.push(chunk)
    if (chunk.length < LARGE) return this.#gather(chunk)
    this.#seal()
    // A piece of a socket's buffer would keep the whole of it.
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
    // Not out of a pool, of which a small piece would keep the whole.
    const room = Buffer.allocUnsafeSlow(Math.max(LEAST, Math.min(2 * (this.#used + bytes), MOST)))
    this.#gathered?.copy(room, 0, 0, this.#used)
    this.#gathered = room
  }

  #seal(): void {
    if (this.#gathered !== undefined) this.#chunks.push(this.#gathered.subarray(0, this.#used))
    this.#gathered = undefined
    this.#used = 0
  }

  /** All of them as text, once: they are gone then. */
  take(): string {
    return textOf(this.takeBytes())
  }

  /** All of them in one, once: they are gone then. */
  takeBytes(): Buffer {
    const chunks = this.takeChunks()
    const [first] = chunks
    return chunks.length === 1 && first !== undefined ? first : Buffer.concat(chunks)
  }

  /** All of them in order, once: they are gone then. No chunk is empty. */
  takeChunks(): Buffer[] {
    this.#seal()
    const chunks = this.#chunks
    this.#chunks = []
    this.length = 0
    return chunks
  }
}

/** Most large texts are ASCII throughout, which is read several times as fast if that is known. */
export function textOf(bytes: Buffer): string {
  return bytes.length > MOST && isAscii(bytes) ? bytes.toString('latin1') : bytes.toString('utf8')
}

function copyOf(chunk: Buffer): Buffer {
  const copy = Buffer.allocUnsafeSlow(chunk.length)
  chunk.copy(copy)
  return copy
}
