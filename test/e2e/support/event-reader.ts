import { SseDecoder } from '../../../src/protocol/sse.ts'
import { until } from '../../support/until.ts'
import type { Json } from './gateway.ts'

export interface ReadEvent {
  readonly id: string | undefined
  readonly message: Json | undefined
}

/** A stream of events, readable before its end. */
export class EventReader {
  readonly status: number
  readonly events: ReadEvent[] = []
  /** Whether the stream is over, cleanly or not. */
  ended = false
  /** The error that broke the stream, if any. */
  broken: unknown
  readonly #abort: AbortController

  static async open(url: string, init: RequestInit): Promise<EventReader> {
    const abort = new AbortController()
    const response = await fetch(url, { ...init, signal: abort.signal })
    return new EventReader(response, abort)
  }

  private constructor(response: Response, abort: AbortController) {
    this.status = response.status
    this.#abort = abort
    void this.#read(response)
  }

  /** Returns all messages so far, or only those of a method. */
  messages(method?: string): Json[] {
    const all = this.events.flatMap(({ message }) => (message === undefined ? [] : [message]))
    return method === undefined ? all : all.filter((message) => message.method === method)
  }

  async next(what: string, fits: (message: Json) => boolean): Promise<Json> {
    await until(what, () => this.messages().some(fits))
    return this.messages().find(fits) as Json
  }

  /** Breaks the connection, like a client without a network. */
  drop(): void {
    this.#abort.abort()
  }

  async #read(response: Response): Promise<void> {
    const decoder = new SseDecoder(64 * 1024 ** 2, ({ id, data }) => {
      this.events.push({ id, message: data === '' ? undefined : (JSON.parse(data) as Json) })
    })
    try {
      for await (const chunk of response.body ?? []) decoder.feed(Buffer.from(chunk as Uint8Array))
    } catch (error) {
      this.broken = error
    } finally {
      this.ended = true
    }
  }
}
