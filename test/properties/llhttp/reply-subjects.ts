import { ChunkReader } from '../../../src/wire/http-chunks.ts'
import { END_OF_HEAD, lengthIn, onlyValue, readFields } from '../../../src/wire/http-head.ts'
import { anyReply, chunkedBody, damagedChunks, damagedReply } from './reply-texts.ts'

type Random = () => number

/** A reader of one reply, fed in any portions. */
export interface Reading {
  /** Reads bytes; returns how many belong to the reply, and −1 for refused bytes. */
  read(bytes: Buffer): number
  /** Reads the end of the connection; returns whether the reply may end there. */
  end(): boolean
  /** Whether the reply has come to its end. */
  readonly isOver: boolean
  /** The body so far, as Latin-1. */
  readonly body: string
  /** Whether a next reply may follow on the connection; undefined if the subject does not read heads. */
  readonly keepsAlive: boolean | undefined
  /** The final status; undefined if the subject does not read heads. */
  readonly status: number | undefined
  /** Names in lower case and values in turn; undefined if the subject does not read heads. */
  readonly fields: readonly string[] | undefined
}

/** A reader of replies under test: a new reader is one more entry of `replySubjects`. */
export interface ReplySubject {
  /** A sentence. */
  readonly name: string
  /** Bytes for llhttp before the bytes that the subject reads. */
  readonly before: string
  /** Returns a reply without fault, as Latin-1. */
  readonly valid: (random: Random) => string
  readonly damaged: (random: Random, text: string) => string
  open(): Reading
}

function openChunks(): Reading {
  let body = ''
  const reader = new ChunkReader((bytes) => (body += bytes.toString('latin1')))
  return {
    read: (bytes) => reader.read(bytes),
    end: () => false,
    get isOver() {
      return reader.isOver
    },
    get body() {
      return body
    },
    keepsAlive: undefined,
    status: undefined,
    fields: undefined,
  }
}

/** Longest head that the plain reading takes, in bytes; llhttp takes 16 KiB. */
const LONGEST_HEAD = 12 * 1024

const STATUS_LINE = /^HTTP\/1\.1 ([2-5]\d\d) [\t\x20-\x7e\x80-\xff]*$/

/** The parts of `src/wire` joined in the plainest way: a head of one line of status, then a body by length or chunks. */
class PlainReading implements Reading {
  #head = ''
  #chunks: ChunkReader | undefined
  #left = 0
  status: number | undefined
  fields: readonly string[] | undefined
  keepsAlive = false
  isOver = false
  body = ''

  read(bytes: Buffer): number {
    let at = 0
    while (at < bytes.length && this.fields === undefined) {
      this.#head += String.fromCharCode(bytes[at++]!)
      if (this.#head.endsWith(END_OF_HEAD) && !this.#readHead(this.#head.slice(0, -END_OF_HEAD.length)))
        return -1
    }
    if (at === bytes.length || this.isOver) return at
    if (this.#chunks !== undefined) {
      const count = this.#chunks.read(bytes.subarray(at))
      this.isOver = this.#chunks.isOver
      return count === -1 ? -1 : at + count
    }
    const end = Math.min(bytes.length, at + this.#left)
    this.body += bytes.toString('latin1', at, end)
    this.#left -= end - at
    this.isOver = this.#left === 0
    return end
  }

  end(): boolean {
    return this.#left === Infinity
  }

  #readHead(head: string): boolean {
    const end = head.indexOf('\r\n')
    const [, status] = STATUS_LINE.exec(end === -1 ? head : head.slice(0, end)) ?? []
    const fields = end === -1 ? [] : readFields(head, end + 2, true)
    if (head.length > LONGEST_HEAD || status === undefined || fields === undefined || /^[23]04$/.test(status))
      return false
    const coding = onlyValue(fields, 'transfer-encoding')
    const declared = onlyValue(fields, 'content-length')
    if (coding === null || declared === null) return false
    if (coding !== undefined) {
      if (coding.toLowerCase() !== 'chunked' || declared !== undefined) return false
      this.#chunks = new ChunkReader((bytes) => (this.body += bytes.toString('latin1')))
    } else {
      const length = declared === undefined ? Infinity : lengthIn(declared)
      if (length === undefined) return false
      this.#left = length
      this.isOver = length === 0
    }
    const connection = onlyValue(fields, 'connection')
    const isUsual = connection === undefined || connection?.toLowerCase() === 'keep-alive'
    this.keepsAlive = isUsual && onlyValue(fields, 'proxy-connection') === undefined
    this.status = Number(status)
    this.fields = fields
    return true
  }
}

export const replySubjects: readonly ReplySubject[] = [
  {
    name: 'a body that is read in chunks has the same bytes and the same end for llhttp',
    before: 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n',
    valid: chunkedBody,
    damaged: damagedChunks,
    open: openChunks,
  },
  {
    name: 'a reply that is read by fields, length and chunks has the same status, fields, body and end for llhttp',
    before: '',
    valid: anyReply,
    damaged: damagedReply,
    open: () => new PlainReading(),
  },
]
