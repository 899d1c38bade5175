import type { AnswerShape } from '../../src/mesh/wire-shape.ts'
import { gatewayError, type GatewayError } from '../../src/mesh/errors.ts'
import type { Connect, Pipe, PipeEvents, Posting } from '../../src/upstreams/pipe/pipe.ts'

export type Json = Readonly<Record<string, unknown>>

/** The default answer to `initialize`. */
const welcome: Json = {
  result: { protocolVersion: '2025-11-25', capabilities: {}, serverInfo: { name: 'memory', version: '1' } },
}

/** A pipe to a server that the test plays: the test reads sent messages and sends any message. */
export class MemoryPipe implements Pipe {
  /** All sent texts, oldest first. */
  readonly texts: string[] = []
  /** Shapes of answers, by the ids of their requests. */
  readonly shapes = new Map<number, AnswerShape>()
  /** While true, sent messages wait. */
  full = false
  isClosed = false
  readonly #welcome: Json | undefined
  #events!: PipeEvents

  /** `answer`: the rest of the answer to `initialize`; `none` leaves the handshake to the test. */
  constructor(answer: Json | 'none' = welcome) {
    this.#welcome = answer === 'none' ? undefined : answer
  }

  readonly connect: Connect = (events) => {
    this.#events = events
    return Promise.resolve(this)
  }

  send(text: string, { signal, onWrite }: Posting = {}): Promise<void> {
    if (this.isClosed) return Promise.reject(gatewayError('upstream_disconnected', 'closed'))
    if (this.full)
      return new Promise((_, reject) => signal?.addEventListener('abort', () => reject(signal.reason)))
    onWrite?.()
    this.texts.push(text)
    const { id, method } = JSON.parse(text) as Json
    if (method === 'initialize' && this.#welcome !== undefined) void this.say({ id, ...this.#welcome })
    return Promise.resolve()
  }

  shape(id: number, shape: AnswerShape): () => void {
    this.shapes.set(id, shape)
    return () => void this.shapes.delete(id)
  }

  close(): Promise<void> {
    this.end(gatewayError('upstream_disconnected', 'closed'))
    return Promise.resolve()
  }

  /** Returns the sent requests and notifications with this method. */
  sent(method: string): Json[] {
    return this.texts.map((text) => JSON.parse(text) as Json).filter((message) => message.method === method)
  }

  /** Returns the answers to requests of the server. */
  answers(): Json[] {
    return this.texts.map((text) => JSON.parse(text) as Json).filter((message) => !('method' in message))
  }

  /** Sends from the server: a text unchanged, or a message with `jsonrpc` added. */
  say(message: string | Json): Promise<void> | undefined {
    return this.#events.message(
      typeof message === 'string' ? message : JSON.stringify({ jsonrpc: '2.0', ...message }),
    )
  }

  overlong(id: number | undefined): void {
    this.#events.overlong(id, 1_000)
  }

  /** Ends the conversation, as the server. */
  end(error: GatewayError = gatewayError('upstream_disconnected', 'the server is gone')): void {
    if (this.isClosed) return
    this.isClosed = true
    this.#events.closed(error)
  }
}
