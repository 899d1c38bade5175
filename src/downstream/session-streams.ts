import type { ServerResponse } from 'node:http'
import { EventStream, readEventId } from './event-stream.ts'
import { ReplayLog, type ReplayBudget, type ReplayLimits } from './replay.ts'

/** The number of the stream for what belongs to no call. */
const STANDALONE = 0

/** The streams of events of one session: one for what belongs to no call, and one for each POST that needs it. */
export class SessionStreams {
  readonly standalone: EventStream
  readonly #log: ReplayLog
  readonly #priming: boolean
  readonly #unread: (response: ServerResponse) => void
  readonly #open = new Map<number, EventStream>()
  #count = STANDALONE

  /**
   * `priming` gives clients an id to resume from before the first event of a stream; `unread` is told of connections
   * that did not take all at once.
   */
  constructor(
    limits: ReplayLimits,
    budget: ReplayBudget,
    priming: boolean,
    unread: (response: ServerResponse) => void,
  ) {
    this.#log = new ReplayLog(limits, budget)
    this.#priming = priming
    this.#unread = unread
    this.standalone = this.#stream(STANDALONE)
  }

  /** A stream for one POST, from its first message on. */
  open(response: ServerResponse): EventStream {
    const stream = this.#stream(++this.#count)
    this.#open.set(stream.number, stream)
    stream.attach(response, { priming: this.#priming })
    return stream
  }

  close(stream: EventStream): void {
    stream.end()
    this.#open.delete(stream.number)
  }

  /**
   * Sends a client the stream that it lost, or without an event id what belongs to no call. Gives that stream;
   * undefined for an id that is none of ours.
   */
  attach(response: ServerResponse, lastEventId: string | undefined): EventStream | undefined {
    const place =
      lastEventId === undefined ? { stream: STANDALONE, sequence: undefined } : readEventId(lastEventId)
    if (place === undefined || place.stream > this.#count) return undefined
    const live = place.stream === STANDALONE ? this.standalone : this.#open.get(place.stream)
    const stream = live ?? this.#stream(place.stream)
    stream.attach(response, { after: place.sequence, priming: this.#priming })
    // What is over is repeated as far as it is kept.
    if (live === undefined) stream.end()
    return stream
  }

  /** Ends all streams for good: nobody comes back to them. */
  endAll(): void {
    for (const stream of this.#open.values()) stream.end()
    this.standalone.end()
    this.#log.close()
  }

  #stream(number: number): EventStream {
    return new EventStream(number, this.#log, this.#unread)
  }
}
