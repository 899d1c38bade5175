import {
  type BrotliDecompress,
  constants,
  createBrotliDecompress,
  createGunzip,
  createInflate,
  createInflateRaw,
  type Gunzip,
  type Inflate,
} from 'node:zlib'

/** With the number of its method the one of two formats begins that servers mean by deflate (RFC 1950, section 2.2). */
const DEFLATE_METHOD = 8

/** How a reply is compressed, as `Content-Encoding` names it. */
export type Coding = 'gzip' | 'deflate' | 'br'

export function codingOf(header: string): Coding | undefined {
  switch (header.trim().toLowerCase()) {
    case 'gzip':
    case 'x-gzip':
      return 'gzip'
    case 'deflate':
      return 'deflate'
    case 'br':
      return 'br'
    default:
      return undefined
  }
}

export interface InflationEnd {
  /** Takes a part of what was compressed. False asks for a break, until `resume`. */
  readonly take: (chunk: Buffer) => boolean
  /** Called when the bytes are not in this coding. */
  readonly failed: (cause: Error) => void
}

/** Reads a compressed reply piece by piece, and no faster than what is in it is taken: a small reply may hold a huge one. */
export class Inflation {
  readonly #coding: Coding
  readonly #end: InflationEnd
  #stream: Gunzip | Inflate | BrotliDecompress | undefined
  #isOver = false

  constructor(coding: Coding, end: InflationEnd) {
    this.#coding = coding
    this.#end = end
  }

  /** False asks for a break; `resume` is called when it is over. */
  write(chunk: Buffer, resume: () => void): boolean {
    if (this.#isOver) return true
    this.#stream ??= this.#open(chunk)
    if (this.#stream.write(chunk)) return true
    this.#stream.once('drain', resume)
    return false
  }

  /** Reads on after a break. */
  resume(): void {
    this.#stream?.resume()
  }

  /** Nothing more is written; `done` is called once all that came was taken, unless it fails. */
  finish(done: () => void): void {
    if (this.#stream === undefined) return done()
    this.#stream.once('end', () => {
      if (!this.#isOver) done()
    })
    this.#stream.end()
  }

  /** Nothing more is taken. */
  stop(): void {
    this.#isOver = true
    this.#stream?.destroy()
  }

  #open(first: Buffer): Gunzip | Inflate | BrotliDecompress {
    const stream = opened(this.#coding, first)
    stream.on('data', (chunk: Buffer) => {
      if (!this.#isOver && !this.#end.take(chunk)) stream.pause()
    })
    stream.on('error', (cause) => {
      if (!this.#isOver) this.#end.failed(cause)
    })
    return stream
  }
}

/** Returns the decompressor of a reply. It flushes each chunk, so a stream that breaks off loses no event that has arrived. */
function opened(coding: Coding, first: Buffer): Gunzip | Inflate | BrotliDecompress {
  if (coding === 'br') {
    const { BROTLI_OPERATION_FLUSH: flush } = constants
    return createBrotliDecompress({ flush, finishFlush: flush })
  }
  const options = { flush: constants.Z_SYNC_FLUSH, finishFlush: constants.Z_SYNC_FLUSH }
  if (coding === 'gzip') return createGunzip(options)
  return ((first[0] ?? 0) & 0x0f) === DEFLATE_METHOD ? createInflate(options) : createInflateRaw(options)
}
