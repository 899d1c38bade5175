import { readFields } from './http-head.ts'

/** The chunked transfer coding (RFC 9112, section 7.1), read strictly. */

/** Longest line of a size with its extensions, and longest trailer section, in bytes. */
const LONGEST_LINE = 4 * 1024
const LONGEST_TRAILERS = 16 * 1024

/** Largest size of a chunk in hexadecimal digits: less than 2^52 bytes. */
const MOST_DIGITS = 13

/** The size of a chunk: hexadecimal digits, and perhaps extensions, without spaces outside of quotes. */
const SIZE =
  /^([\dA-Fa-f]+)(?:;[!#$%&'*+.^`|~\w-]+(?:=(?:[!#$%&'*+.^`|~\w-]+|"(?:[\t !#-[\]-~\x80-\xff]|\\[\t -~\x80-\xff])*"))?)*$/

/** Fields that describe the message itself. A reader may obey these in a trailer section, too (RFC 9110, section 6.5.1). */
const unfitTrailers: ReadonlySet<string> = new Set([
  'connection',
  'content-length',
  'proxy-connection',
  'trailer',
  'transfer-encoding',
  'upgrade',
])

/** Reads a body in chunks. Bytes may come in any portions. */
export class ChunkReader {
  readonly #take: (bytes: Buffer) => boolean | void
  #part: 'size' | 'data' | 'end of data' | 'trailers' = 'size'
  /** The begun line, as Latin-1. */
  #line = ''
  #left = 0
  #trailers = 0
  /** Whether the last chunk and its trailers have come. */
  isOver = false

  /** Calls `take` with each piece of the body; the bytes are not copied. `read` stops after a piece for which `take` returns false. */
  constructor(take: (bytes: Buffer) => boolean | void) {
    this.#take = take
  }

  /**
   * Reads bytes. Returns the number of bytes read: fewer than given when the body is over, or when `take` stopped the
   * reading. Returns -1 for bytes that are no chunks; the reader must not be used afterwards.
   */
  read(bytes: Buffer): number {
    let at = 0
    while (at < bytes.length && !this.isOver) {
      if (this.#part === 'data') {
        const end = Math.min(bytes.length, at + this.#left)
        const piece = at === 0 && end === bytes.length ? bytes : bytes.subarray(at, end)
        this.#left -= piece.length
        at = end
        if (this.#left === 0) this.#part = 'end of data'
        if (this.#take(piece) === false) return at
        continue
      }
      const end = bytes.indexOf(LF, at)
      const until = end === -1 ? bytes.length : end + 1
      this.#line += bytes.toString('latin1', at, until)
      at = until
      if (this.#line.length > LONGEST_LINE) return -1
      if (end !== -1 && !this.#endLine()) return -1
    }
    return at
  }

  /** Reads a complete line; returns false for a wrong line. */
  #endLine(): boolean {
    if (!this.#line.endsWith('\r\n')) return false
    const line = this.#line.slice(0, -2)
    this.#line = ''
    if (this.#part === 'end of data') {
      this.#part = 'size'
      return line === ''
    }
    if (this.#part === 'size') {
      const [, digits = ''] = SIZE.exec(line) ?? []
      if (digits === '' || digits.length > MOST_DIGITS) return false
      this.#left = Number.parseInt(digits, 16)
      this.#part = this.#left === 0 ? 'trailers' : 'data'
      return true
    }
    if (line === '') return (this.isOver = true)
    this.#trailers += line.length
    const [name] = readFields(line, 0, true) ?? []
    return this.#trailers <= LONGEST_TRAILERS && name !== undefined && !unfitTrailers.has(name)
  }
}

const LF = 0x0a

/** The last chunk, without trailers. */
export const LAST_CHUNK = '0\r\n\r\n'

/** Returns the line before a chunk of this many bytes; the chunk ends with CR LF. */
export const chunkSize = (bytes: number): string => `${bytes.toString(16)}\r\n`
