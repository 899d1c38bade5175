import { ChunkReader } from '../../../src/wire/http-chunks.ts'
import { END_OF_HEAD, readFields } from '../../../src/wire/http-head.ts'
import type { ReplyHead } from '../../../src/upstreams/http/reply-head.ts'
import { ReplyReader } from '../../../src/upstreams/http/reply-reader.ts'
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
  const reader = new ChunkReader((bytes) => {
    body += bytes.toString('latin1')
  })
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

/** The reader of the sockets for calls. */
class CallReading implements Reading {
  /** All bytes read, as Latin-1. */
  #all = ''
  #head: ReplyHead | undefined
  body = ''
  isOver = false
  readonly #reader = new ReplyReader({
    head: (head) => {
      if (head.status >= 200) this.#head = head
      return true
    },
    data: (bytes) => {
      this.body += bytes.toString('latin1')
      return true
    },
    complete: () => (this.isOver = true),
  })

  constructor() {
    this.#reader.begin()
  }

  read(bytes: Buffer): number {
    const fault = this.#reader.read(bytes)
    const before = this.#all
    this.#all += bytes.toString('latin1')
    if (!this.isOver) return fault === undefined ? bytes.length : -1
    // Bytes behind the reply are a fault, but not of this reply. Looks for the least number of bytes that end the reply.
    let [least, most] = [0, bytes.length]
    while (least < most) {
      const middle = (least + most) >> 1
      const other = new CallReading()
      other.#reader.read(Buffer.from(before + bytes.toString('latin1', 0, middle), 'latin1'))
      if (other.isOver) most = middle
      else least = middle + 1
    }
    return least
  }

  end(): boolean {
    return this.#reader.end()
  }

  get status(): number | undefined {
    return this.#head?.status
  }

  get keepsAlive(): boolean {
    return this.#head !== undefined && this.#head.keepMs > 0
  }

  /** The fields of the final head; undefined for folded values, which llhttp shows otherwise. */
  get fields(): readonly string[] | undefined {
    for (let at = 0; ;) {
      while (this.#all[at] === '\r' || this.#all[at] === '\n') at++
      const end = this.#all.indexOf(END_OF_HEAD, at)
      if (end === -1) return undefined
      const head = this.#all.slice(at, end)
      at = end + END_OF_HEAD.length
      if (/^HTTP\/1\.[01] 1/.test(head)) continue
      const line = head.indexOf('\r\n')
      return line === -1 ? [] : readFields(head, line + 2, true)
    }
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
    name: 'a reply that the sockets for calls read has the same status, fields, body and end for llhttp',
    before: '',
    valid: anyReply,
    damaged: damagedReply,
    open: () => new CallReading(),
  },
]
