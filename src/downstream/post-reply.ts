import type { ServerResponse } from 'node:http'
import type { Answer, CallRecord, Channel, Message } from '../mesh/call.ts'
import type { Clock } from '../mesh/clock.ts'
import type { EventStream } from './event-stream.ts'
import type { Response } from './respond.ts'
import { putOnWire } from './wire.ts'
import type { Session } from './session.ts'
import { forWire } from './unread-replies.ts'

/** The reply to one POST: JSON, unless something has to travel before the answer; then a stream of events. */
export class PostReply {
  readonly #session: Session
  readonly #response: ServerResponse
  readonly #clock: Clock
  #stream: EventStream | undefined

  constructor(session: Session, response: ServerResponse, clock: Clock) {
    this.#session = session
    this.#response = response
    this.#clock = clock
  }

  /** The channel of one of the POST's requests, for what `server` sends. */
  channelFor(server: string, record: CallRecord): Channel {
    return {
      open: () => void this.#open(),
      pause: (retryMs) => {
        if (this.#session.primes) this.#stream?.pause(retryMs)
      },
      send: (message: Message, answer?: Answer) => {
        const text = this.#session.textFor(server, message, answer, record)
        if (text === undefined) return undefined
        record.firstByteAt ??= this.#clock.now()
        return this.#open().send(text)
      },
    }
  }

  /** Ends the POST with the answers to its requests: one as it is, several of a batch in order. */
  finish(responses: readonly Response[], isBatch: boolean): void {
    const wire = responses.find((response) => response.wire !== undefined)?.wire
    if (wire !== undefined) {
      putOnWire(this.#response, wire)
      if (this.#stream !== undefined) this.#session.streams.close(this.#stream)
      return
    }
    if (this.#stream !== undefined) {
      for (const { text } of responses) void this.#stream.send(text)
      this.#session.streams.close(this.#stream)
      return
    }
    const [first] = responses
    if (isBatch) sendJson(this.#response, 200, `[${responses.map(({ text }) => text).join()}]`)
    else if (first !== undefined) sendJson(this.#response, first.status, first.text)
    this.#session.wrote(this.#response)
  }

  #open(): EventStream {
    return (this.#stream ??= this.#session.streams.open(this.#response))
  }
}

/** Sends a complete JSON reply; does nothing when the client is gone. */
export function sendJson(
  response: ServerResponse,
  status: number,
  text: string,
  headers: Readonly<Record<string, string>> = {},
): void {
  if (response.destroyed || response.headersSent) return
  const body = forWire(text)
  response.writeHead(status, {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(body),
    ...headers,
  })
  response.end(body)
}
