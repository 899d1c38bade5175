import { injectedFaults } from '../../mesh/injected.ts'
import type { Call, Caller, Layer, Outcome, Service } from '../../mesh/call.ts'
import { Cancellation } from '../../mesh/cancel.ts'
import type { WireShape } from '../../mesh/wire-shape.ts'
import { resultText } from '../../protocol/jsonrpc.ts'
import type { SseEvent } from '../../protocol/sse.ts'
import { ownCall } from '../own-call.ts'
import { ReplyHeaders, answered } from './http-status.ts'
import type { ReplySink } from './http-reply.ts'

/** The owner of a stream for messages outside of calls, and the faults of the stream. */
export interface StandingStreamParts {
  readonly server: string
  readonly caller: Caller
  readonly faults: Layer
}

/** Most recent events that a fault can repeat, and the longest such event, in characters. */
const MOST_RECENT = 16
const LONGEST_RECENT = 64 * 1024

const none: readonly SseEvent[] = []

/**
 * Requests a caller's streams for messages outside of calls, one after another. For faults, each stream is a call that
 * lasts until the stream ends. The sink gets an answer of a fault as if it came from the server.
 */
export class StandingStreams {
  readonly #server: string
  readonly #caller: Caller
  readonly #faults: Layer
  /** The latest events of faulted streams. */
  #recent = none

  constructor({ server, caller, faults }: StandingStreamParts) {
    this.#server = server
    this.#caller = caller
    this.#faults = faults
  }

  /** `open` sends the request for a stream; the reply goes to the given sink. */
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
      // Without a fault, nobody waits for the end of the stream: the call ends here, and is not kept in memory.
      if (hit === call && injectedFaults.of(call.record) === undefined) {
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

  /**
   * Returns a sink that first repeats the latest events (negative `shift`) or leaves out the next events (positive
   * `shift`).
   */
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
        // The event loses its data but keeps its id, so the sink still records the place in the stream.
        if (left-- > 0) return sink.event({ ...event, data: '' })
        if (event.data.length <= LONGEST_RECENT) this.#recent = [...this.#recent, event].slice(-MOST_RECENT)
        return sink.event(event)
      },
    }
  }
}

/** Outcome of a stream that ended normally. */
const inOrder: Outcome = answered(0, { text: resultText(0, '{}'), value: { result: {} } }, 200)

/** Returns a sink that passes everything on, and calls `over` at the end of the stream. */
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
