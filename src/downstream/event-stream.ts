import type { ServerResponse } from 'node:http'
import { encodeEvent } from '../protocol/sse.ts'
import type { ReplayLog } from './replay.ts'

/** Reads an event id of ours: the stream, and the event's place in it. */
export function readEventId(id: string): { stream: number; sequence: number } | undefined {
  const match = /^(\d{1,15})-(\d{1,15})$/.exec(id)
  return match === null ? undefined : { stream: Number(match[1]), sequence: Number(match[2]) }
}

/**
 * One stream of events to a client. It outlives its connection: what is sent while nobody listens goes
 * to the replay log, and a client that comes back gets it.
 */
export class EventStream {
  readonly number: number
  readonly #log: ReplayLog
  #sequence = 0
  #delivered = 0
  #response: ServerResponse | undefined
  #ended = false

  /** `number` is unique within the session. */
  constructor(number: number, log: ReplayLog) {
    this.number = number
    this.#log = log
  }

  get attached(): boolean {
    return this.#response !== undefined
  }

  /**
   * Sends this stream to a connection, in place of the one before. With `after`, events behind that one
   * are repeated; without, those that nobody has received. `priming` gives the client an id to resume from
   * before the first message.
   */
  attach(response: ServerResponse, { after, priming }: { after?: number | undefined; priming: boolean }): void {
    this.#response?.end()
    this.#response = response
    response.once('close', () => {
      if (this.#response === response) this.#response = undefined
    })
    response.writeHead(200, {
      'content-type': 'text/event-stream',
      'cache-control': 'no-cache, no-transform',
      'x-accel-buffering': 'no',
    })
    response.flushHeaders()
    if (priming && after === undefined) response.write(`id: ${this.number}-${this.#sequence}\ndata: \n\n`)
    for (const event of this.#log.after(this.number, after ?? this.#delivered)) {
      response.write(encodeEvent(event.data, `${this.number}-${event.sequence}`))
    }
    this.#delivered = this.#sequence
    if (this.#ended) response.end()
  }

  /** Sends one message. A promise asks to wait until the connection can take more. */
  send(data: string): Promise<void> | undefined {
    const sequence = ++this.#sequence
    this.#log.add({ stream: this.number, sequence, data })
    const response = this.#response
    if (response === undefined) return undefined
    this.#delivered = sequence
    return response.write(encodeEvent(data, `${this.number}-${sequence}`)) ? undefined : drained(response)
  }

  /** Sends the client away, to come back after `retryMs`; what happens meanwhile goes to the log. */
  pause(retryMs: number): void {
    this.#response?.end(`id: ${this.number}-${this.#sequence}\nretry: ${retryMs}\ndata: \n\n`)
    this.#response = undefined
  }

  end(): void {
    this.#ended = true
    this.#response?.end()
    this.#response = undefined
  }
}

/** Resolves when the connection takes more, or is gone. */
export function drained(response: ServerResponse): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      response.off('drain', done)
      response.off('close', done)
      resolve()
    }
    response.once('drain', done)
    response.once('close', done)
  })
}
