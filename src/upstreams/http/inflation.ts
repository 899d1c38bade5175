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

/**
 * The method number in the first byte of the zlib format (RFC 1950, section 2.2). `deflate` can mean this format or raw
 * deflate data.
 */
const DEFLATE_METHOD = 8

/** Compression of a reply, as named by `Content-Encoding`. */
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
  /** Takes decompressed bytes. Returns false to pause until `resume`. */
  readonly take: (chunk: Buffer) => boolean
  /** Called when the bytes are not in this coding. */
  readonly failed: (cause: Error) => void
}

/** Decompresses a reply piece by piece, no faster than its reader: a small reply may contain a huge text. */
export class Inflation {
  readonly #coding: Coding
  readonly #end: InflationEnd
  #stream: Gunzip | Inflate | BrotliDecompress | undefined
  #isOver = false

  constructor(coding: Coding, end: InflationEnd) {
    this.#coding = coding
    this.#end = end
  }

  /** Returns false to pause; `resume` is called afterwards. */
  write(chunk: Buffer, resume: () => void): boolean {
    if (this.#isOver) return true
    this.#stream ??= this.#open(chunk)
    if (this.#stream.write(chunk)) return true
    this.#stream.once('drain', resume)
    return false
  }

  resume(): void {
    this.#stream?.resume()
  }

  /** Ends the input; `done` is called once all output was taken, except after a failure. */
  finish(done: () => void): void {
    if (this.#stream === undefined) return done()
    this.#stream.once('end', () => {
      if (!this.#isOver) done()
    })
    this.#stream.end()
  }

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

/** Returns the decompressor of a reply. Flushes each chunk, so a broken stream loses no arrived event. */
function opened(coding: Coding, first: Buffer): Gunzip | Inflate | BrotliDecompress {
  if (coding === 'br') {
    const { BROTLI_OPERATION_FLUSH: flush } = constants
    return createBrotliDecompress({ flush, finishFlush: flush })
  }
  const options = { flush: constants.Z_SYNC_FLUSH, finishFlush: constants.Z_SYNC_FLUSH }
  if (coding === 'gzip') return createGunzip(options)
  return ((first[0] ?? 0) & 0x0f) === DEFLATE_METHOD ? createInflate(options) : createInflateRaw(options)
}
