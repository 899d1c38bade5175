import { ChunkReader } from '../../wire/http-chunks.ts'
import { END_OF_HEAD } from '../../wire/http-head.ts'
import { type ReplyHead, readReplyHead } from './reply-head.ts'

/** Takes the parts of a reply. A returned false pauses the reading. */
export interface ReplyTaker {
  /** Also called for each interim response (1xx). */
  head(head: ReplyHead): boolean
  data(bytes: Buffer): boolean
  complete(head: ReplyHead): void
}

/** Longest head of a reply, in bytes. */
const LONGEST_HEAD = 16 * 1024

/** The status of an upgrade, for which nobody asks. */
const SWITCHING = 101

const CR = 0x0d
const LF = 0x0a

/** Codes of unreadable replies, named as by Node's parser. */
export type ReplyFault =
  | 'HPE_INVALID_HEADER_TOKEN'
  | 'HPE_INVALID_CHUNK_SIZE'
  | 'UND_ERR_HEADERS_OVERFLOW'
  /** An upgrade, or bytes outside of any reply: they must not become the reply to a later request. */
  | 'UND_ERR_SOCKET'

/**
 * Reads the replies of one connection, one at a time, strictly (RFC 9112). Bytes may come in any portions. Equal heads in
 * a row are parsed once.
 */
export class ReplyReader {
  readonly #taker: ReplyTaker
  #part: 'none' | 'head' | 'body' | 'over' = 'none'
  /** Bytes of an incomplete head, or bytes that came during a pause. */
  #rest: Buffer | undefined
  #head: ReplyHead | undefined
  /** The bytes of the last head, up to and with the empty line. */
  #lastBytes: Buffer | undefined
  #last: ReplyHead | undefined
  /** Bytes left of a body with a length. */
  #left = 0
  #chunks: ChunkReader | undefined
  #isPaused = false

  constructor(taker: ReplyTaker) {
    this.#taker = taker
  }

  /** Whether the head of a reply is awaited. */
  get awaitsHead(): boolean {
    return this.#part === 'head'
  }

  get isPaused(): boolean {
    return this.#isPaused
  }

  /** Expects a reply. */
  begin(): void {
    this.#part = 'head'
  }

  /** Takes nothing more. */
  stop(): void {
    this.#part = 'over'
    this.#rest = undefined
    this.#chunks = undefined
  }

  /** Reads bytes; returns why they cannot be read. */
  read(bytes: Buffer): ReplyFault | undefined {
    const all = this.#rest === undefined ? bytes : Buffer.concat([this.#rest, bytes])
    this.#rest = undefined
    return this.#readFrom(all, 0)
  }

  /** Reads on after a pause. */
  resume(): ReplyFault | undefined {
    if (!this.#isPaused) return undefined
    this.#isPaused = false
    if (this.#hasAll) this.#complete(this.#head!)
    const rest = this.#rest
    this.#rest = undefined
    return rest === undefined ? undefined : this.#readFrom(rest, 0)
  }

  /** Ends a body that ends with the connection; returns whether the reply is complete. */
  end(): boolean {
    const head = this.#head
    if (this.#part !== 'body' || head?.body !== 'close' || this.#rest !== undefined) return false
    this.#complete(head)
    return true
  }

  #readFrom(bytes: Buffer, from: number): ReplyFault | undefined {
    let at = from
    while (at < bytes.length) {
      if (this.#part === 'over') return undefined
      if (this.#isPaused) {
        this.#rest = at === 0 ? bytes : bytes.subarray(at)
        return undefined
      }
      if (this.#part === 'body') {
        const next = this.#readBody(bytes, at)
        if (next === -1) return 'HPE_INVALID_CHUNK_SIZE'
        at = next
        continue
      }
      // Some servers send an empty line behind a reply.
      while (bytes[at] === CR || bytes[at] === LF) at++
      if (at === bytes.length) return undefined
      if (this.#part === 'none') return 'UND_ERR_SOCKET'
      const end = bytes.indexOf(END_OF_HEAD, at)
      const length = (end === -1 ? bytes.length : end) - at
      if (length > LONGEST_HEAD) return 'UND_ERR_HEADERS_OVERFLOW'
      if (end === -1) {
        this.#rest = at === 0 ? bytes : bytes.subarray(at)
        return undefined
      }
      const head = this.#headOf(bytes, at, end)
      // An interim response that ends the connection precedes no reply.
      if (head === undefined || (head.status < 200 && head.keepMs === 0)) return 'HPE_INVALID_HEADER_TOKEN'
      if (head.status === SWITCHING) return 'UND_ERR_SOCKET'
      at = end + END_OF_HEAD.length
      this.#begin(head)
    }
    return undefined
  }

  #headOf(bytes: Buffer, from: number, end: number): ReplyHead | undefined {
    const last = this.#lastBytes
    if (last?.length === end - from && last.compare(bytes, from, end) === 0) return this.#last
    const head = readReplyHead(bytes.toString('latin1', from, end))
    this.#last = head
    // Copied: the bytes of a socket belong to a larger buffer.
    this.#lastBytes = head === undefined ? undefined : Buffer.from(bytes.subarray(from, end))
    return head
  }

  #begin(head: ReplyHead): void {
    const goesOn = this.#taker.head(head)
    if (this.#part === 'over' || head.status < 200) return
    this.#head = head
    this.#part = 'body'
    if (!goesOn) this.#isPaused = true
    const { body } = head
    if (body === 'chunks') this.#chunks = new ChunkReader(this.#take)
    else if (body !== 'close') {
      this.#left = body
      if (this.#hasAll) this.#complete(head)
    }
  }

  /** Returns the place behind the bytes read; -1 for bytes that are no chunks. */
  #readBody(bytes: Buffer, at: number): number {
    const head = this.#head!
    const rest = at === 0 ? bytes : bytes.subarray(at)
    if (this.#chunks !== undefined) {
      const chunks = this.#chunks
      const read = chunks.read(rest)
      if (read === -1) return -1
      if (chunks.isOver && this.#part === 'body') this.#complete(head)
      return at + read
    }
    const isAll = head.body === 'close' || rest.length <= this.#left
    const piece = isAll ? rest : rest.subarray(0, this.#left)
    this.#left -= piece.length
    if (!this.#taker.data(piece)) this.#isPaused = true
    if (this.#hasAll) this.#complete(head)
    return at + piece.length
  }

  /** Whether a body with a length is complete, and nothing holds back its end. */
  get #hasAll(): boolean {
    const isWhole = this.#part === 'body' && typeof this.#head?.body === 'number' && this.#left === 0
    return isWhole && !this.#isPaused
  }

  readonly #take = (piece: Buffer): boolean => {
    if (this.#taker.data(piece)) return this.#part === 'body'
    this.#isPaused = true
    return false
  }

  #complete(head: ReplyHead): void {
    this.#part = 'none'
    this.#head = undefined
    this.#chunks = undefined
    this.#taker.complete(head)
  }
}
