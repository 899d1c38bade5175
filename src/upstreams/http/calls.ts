import { Readable } from 'node:stream'
import type { Dispatcher, Pool } from 'undici'
import { nextTurn } from '../../mesh/clock.ts'
import { LARGE_TEXT } from '../../mesh/work.ts'
import type { ReplyHeaders } from './http-status.ts'

/** A request over the sockets for calls. */
export interface CallRequest {
  readonly method: 'POST' | 'DELETE'
  readonly path: string
  /** Names and values in turn, equal for many requests. Not copied: nobody may change the array. */
  readonly headers: string[]
  /** Names and values of this request only. */
  readonly more?: readonly string[] | undefined
  readonly body?: string
}

/**
 * Takes the reply to a request. `onConnect` comes first, when the request goes to a socket; `abort` then drops the request
 * or the rest of its reply. Exactly one of `onComplete` and `onError` comes last.
 */
export interface CallHandler {
  onConnect(abort: (cause?: Error) => void): void
  /** Also called for interim responses (1xx). Returns false to pause until `resume`. */
  onReply(status: number, headers: ReplyHeaders, resume: () => void): boolean
  /** Returns false to pause until `resume`. */
  onData(bytes: Buffer): boolean
  onComplete(): void
  onError(cause: Error): void
}

/** The sockets for calls to one server. */
export interface Calls {
  dispatch(request: CallRequest, reply: CallHandler & Dispatcher.DispatchHandler): void
  /** Drops all calls; resolves once all sockets are closed. */
  destroy(): Promise<unknown>
}

export const allHeaders = ({ headers, more }: Pick<CallRequest, 'headers' | 'more'>): string[] =>
  more === undefined ? headers : headers.concat(more)

/** Calls over a pool of undici. */
export class PooledCalls implements Calls {
  readonly #pool: Pool

  constructor(pool: Pool) {
    this.#pool = pool
  }

  dispatch(request: CallRequest, reply: Dispatcher.DispatchHandler): void {
    const { method, path, body } = request
    const headers = allHeaders(request)
    const sent =
      body === undefined
        ? { headers }
        : body.length < LARGE_TEXT
          ? { headers, body }
          : inSlices(body, headers)
    this.#pool.dispatch({ method, path, ...sent }, reply)
  }

  destroy(): Promise<unknown> {
    return this.#pool.destroy()
  }
}

/**
 * Largest slice of a body to write at once, in bytes: a write of 4 MB blocks all other work for several milliseconds.
 */
export const SLICE_BYTES = 128 * 1024

/** Returns a large body in slices, with turns of the event loop in between, and headers with its length. */
export function inSlices(body: string, headers: readonly string[]): { headers: string[]; body: Readable } {
  const bytes = Buffer.from(body)
  const slices = Readable.from(slicesOf(bytes), { objectMode: false, highWaterMark: 1 })
  return { headers: [...headers, 'content-length', String(bytes.length)], body: slices }
}

async function* slicesOf(bytes: Buffer): AsyncGenerator<Buffer> {
  for (let at = 0; at < bytes.length; at += SLICE_BYTES) {
    if (at > 0) await nextTurn()
    yield bytes.subarray(at, at + SLICE_BYTES)
  }
}
