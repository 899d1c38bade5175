import type { Writable } from 'node:stream'
import type { Signal } from '../../mesh/cancel.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import { abortError } from '../failure.ts'
import type { Posting } from '../pipe/pipe.ts'
import { Unread } from '../unread.ts'

/** Limits of waiting texts per process, calls included. */
const LIMITS = { messages: 4_096, bytes: 32 * 1024 ** 2 }

interface Waiting {
  readonly text: string
  readonly bytes: number
  readonly posting: Posting
  readonly onAbort: () => void
  readonly resolve: () => void
  readonly reject: (error: GatewayError) => void
}

/** Writes texts to a stream, a line each. While the stream is full, texts wait, up to a limit, and can be cancelled. */
export class Outbox {
  readonly #stream: Writable
  readonly #waiting = new Set<Waiting>()
  readonly #unread = new Unread(LIMITS)
  /** Called when the stream has room again; set while full. */
  #resume: (() => void) | undefined
  #over: GatewayError | undefined

  constructor(stream: Writable) {
    this.#stream = stream
    stream.on('drain', () => this.#drained())
  }

  /** Resolves once the stream has room for the next text. */
  send(text: string, posting: Posting = {}): Promise<void> {
    if (this.#over !== undefined) return Promise.reject(this.#over)
    const { signal } = posting
    if (signal?.aborted) return Promise.reject(abortError(signal))
    return new Promise((resolve, reject) => {
      if (this.#resume === undefined) return this.#write({ text, posting, resolve })
      const onAbort = () => {
        this.#waiting.delete(waiting)
        this.#unread.release(bytes)
        reject(abortError(signal as Signal))
      }
      const bytes = this.#unread.admit(text)
      const waiting = { text, bytes, posting, onAbort, resolve, reject }
      signal?.addEventListener('abort', onAbort, { once: true })
      this.#waiting.add(waiting)
    })
  }

  end(error: GatewayError = gatewayError('upstream_disconnected', 'the server no longer reads')): void {
    if (this.#over !== undefined) return
    this.#over = error
    this.#resume?.()
    for (const waiting of this.#waiting) {
      waiting.posting.signal?.removeEventListener('abort', waiting.onAbort)
      waiting.reject(error)
    }
    this.#waiting.clear()
  }

  #drained(): void {
    this.#resume?.()
    this.#resume = undefined
    for (const waiting of this.#waiting) {
      if (this.#resume !== undefined) return
      this.#waiting.delete(waiting)
      this.#unread.release(waiting.bytes)
      waiting.posting.signal?.removeEventListener('abort', waiting.onAbort)
      this.#write(waiting)
    }
  }

  #write({ text, posting, resolve }: Pick<Waiting, 'text' | 'posting' | 'resolve'>): void {
    posting.onWrite?.()
    if (this.#stream.write(lineOf(text))) resolve()
    else this.#resume = resolve
  }
}

/** Line breaks in JSON text occur only between tokens: a space is equivalent. */
function lineOf(text: string): string {
  return `${/[\r\n]/.test(text) ? text.replace(/[\r\n]+/g, ' ') : text}\n`
}
