import { ChunkReader } from './http-chunks.ts'
import { END_OF_HEAD, onlyValue, readFields } from './http-head.ts'

/** A piece of a reply: bytes of its body, or the framing of HTTP/1.1 around the body. */
export interface FramedPiece {
  readonly bytes: Buffer
  readonly isBody: boolean
}

/** Longest parsed head of a reply, in bytes; a longer head counts as body, and HTTP clients refuse longer heads. */
const LONGEST_HEAD = 16 * 1024

/**
 * Separates the body of a reply from the framing of HTTP/1.1. Bytes that are no framing, such as the chunks of a broken
 * server, count as body.
 */
export class HttpFraming {
  isEventStream = false
  #part: 'head' | 'plain' | 'chunks' = 'head'
  /** The begun head, as Latin-1. */
  #head = ''
  /** Pieces of the body in the bytes being read. */
  #found: Buffer[] = []
  readonly #chunks = new ChunkReader((bytes) => void this.#found.push(bytes))

  split(chunk: Buffer): FramedPiece[] {
    let at = 0
    while (this.#part === 'head' && at < chunk.length) at = this.#readHead(chunk, at)
    const rest = chunk.subarray(at)
    if (this.#part === 'chunks') this.#readChunks(rest)
    else if (rest.length > 0) this.#found.push(rest)
    return this.#pieces(chunk)
  }

  /** Returns the place behind the read part of a head. */
  #readHead(chunk: Buffer, at: number): number {
    const before = this.#head.length
    const text = this.#head + chunk.toString('latin1', at, at + LONGEST_HEAD)
    const end = text.indexOf(END_OF_HEAD, Math.max(0, before - END_OF_HEAD.length))
    this.#head = end === -1 ? text : ''
    if (end !== -1) {
      this.#endHead(text.slice(0, end))
      return at + end + END_OF_HEAD.length - before
    }
    if (text.length > LONGEST_HEAD) this.#part = 'plain'
    return at + text.length - before
  }

  #endHead(head: string): void {
    // An interim response precedes another response.
    if (/^HTTP\/1\.[01] 1\d\d/.test(head)) return
    const fields = readFields(head, head.indexOf('\r\n') + 2, true) ?? []
    this.isEventStream =
      onlyValue(fields, 'content-type')?.toLowerCase().startsWith('text/event-stream') === true
    this.#part = onlyValue(fields, 'transfer-encoding')?.toLowerCase() === 'chunked' ? 'chunks' : 'plain'
  }

  #readChunks(bytes: Buffer): void {
    const read = this.#chunks.isOver ? bytes.length : this.#chunks.read(bytes)
    if (read !== -1) return
    this.#part = 'plain'
    this.#found = [bytes]
  }

  /** Returns the found pieces of the body, with the framing between them. */
  #pieces(chunk: Buffer): FramedPiece[] {
    const pieces: FramedPiece[] = []
    let from = 0
    for (const bytes of this.#found) {
      const at = bytes.byteOffset - chunk.byteOffset
      if (at > from) pieces.push({ bytes: chunk.subarray(from, at), isBody: false })
      pieces.push({ bytes, isBody: true })
      from = at + bytes.length
    }
    if (from < chunk.length) pieces.push({ bytes: chunk.subarray(from), isBody: false })
    this.#found = []
    return pieces
  }
}
