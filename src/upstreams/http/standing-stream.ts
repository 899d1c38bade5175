import type { Call, Caller, Layer, Outcome, Service } from '../../mesh/call.ts'
import { Cancellation } from '../../mesh/cancel.ts'
import type { WireShape } from '../../mesh/wire-shape.ts'
import { resultText } from '../../protocol/jsonrpc.ts'
import type { SseEvent } from '../../protocol/sse.ts'
import { ownCall } from '../own-call.ts'
import { ReplyHeaders, answered } from './http-status.ts'
import type { ReplySink } from './http-reply.ts'

/** The owner of a stream for messages that belong to no call, and the faults that may hit the stream. */
export interface StandingStreamParts {
  /** The server's name in the registry. */
  readonly server: string
  readonly caller: Caller
  readonly faults: Layer
}

/** Most events that faults may have repeated, and the longest such event, in characters. */
const MOST_RECENT = 16
const LONGEST_RECENT = 64 * 1024

const none: readonly SseEvent[] = []

/**
 * Asks for the standing streams of one caller, one after another, past faults: to them each is a call that is over when the stream
 * is. What a fault answers in place of the server comes to the sink as if the server had.
 */
export class StandingStreams {
  readonly #server: string
  readonly #caller: Caller
  readonly #faults: Layer
  /** The latest events of streams that were hit. */
  #recent = none

  constructor({ server, caller, faults }: StandingStreamParts) {
    this.#server = server
    this.#caller = caller
    this.#faults = faults
  }

  /** `open` sends the request for one, whose reply goes to the sink that it is given. */
  ask(sink: ReplySink, open: (sink: ReplySink, shapes: readonly WireShape[] | undefined) => void): void {
    let shift = 0
    const call: Call = {
      ...ownCall(this.#server, 'subscriptions/listen', {}, new Cancellation()),
      caller: this.#caller,
      channel: {
        open: () => undefined,
        pause: () => undefined,
        send: () => undefined,
        wire: { resume: (by) => void (shift = by) },
      },
    }
    let isAsked = false
    const stream: Service = (hit) => {
      isAsked = true
      // Where no fault was decided on, nobody wants to know how it ends: nothing of the call is kept for as long as the stream is open.
      if (hit === call && call.record.faults === undefined) {
        open(sink, undefined)
        return Promise.resolve(inOrder)
      }
      return new Promise((over) => {
        open(
          hit === call ? following(sink, over) : this.#shifted(following(sink, over), shift),
          hit.wire?.shapes,
        )
      })
    }
    void this.#faults(stream)(call).then((outcome) => {
      if (isAsked) return
      const { wire } = outcome
      if (wire?.status !== undefined) sink.body(wire.status, new ReplyHeaders([]), wire.body ?? '')
      else if (outcome.kind !== 'answered') sink.failed(outcome.error)
    })
  }

  /** A sink that gets the latest events again first, or does not get the next ones. */
  #shifted(sink: ReplySink, shift: number): ReplySink {
    let left = Math.max(0, shift)
    return {
      ...sink,
      opened: (headers) => {
        sink.opened(headers)
        if (shift < 0) for (const event of this.#recent.slice(shift)) void sink.event(event)
      },
      event: (event) => {
        if (event.data === '') return sink.event(event)
        // The place in the stream is remembered all the same.
        if (left-- > 0) return sink.event({ ...event, data: '' })
        if (event.data.length <= LONGEST_RECENT) this.#recent = [...this.#recent, event].slice(-MOST_RECENT)
        return sink.event(event)
      },
    }
  }
}

/** How a stream ends that was not cut. */
const inOrder: Outcome = answered(0, { text: resultText(0, '{}'), value: { result: {} } }, 200)

/** The same sink, and somebody who hears how it ended. */
function following(sink: ReplySink, over: (outcome: Outcome) => void): ReplySink {
  const done = () => over(inOrder)
  return {
    opened: (headers) => sink.opened(headers),
    event: (event) => sink.event(event),
    backpressure: () => sink.backpressure?.(),
    body(status, headers, text) {
      done()
      sink.body(status, headers, text)
    },
    ended() {
      done()
      sink.ended()
    },
    failed(error) {
      over({ kind: 'failed', error })
      sink.failed(error)
    },
  }
}
