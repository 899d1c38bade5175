import type { AnswerShape } from '../../mesh/wire-shape.ts'
import type { Signal } from '../../mesh/cancel.ts'
import type { GatewayError } from '../../mesh/errors.ts'
import type { Layer } from '../../mesh/call.ts'
import type { Clock } from '../../mesh/clock.ts'
import type { Era } from '../../protocol/versions.ts'
import type { Log } from '../../telemetry/log.ts'
import type { Conceal } from '../server-words.ts'
import type { Audience } from '../shared/audience.ts'

export interface Posting {
  /** Cancels the text if it still waits to be written. */
  readonly signal?: Signal | undefined
  /** Further headers, for pipes with headers. */
  readonly headers?: Readonly<Record<string, string>> | undefined
  /** Set for a text without an answer, on pipes where such texts could delay calls. */
  readonly oneWay?: 'notification' | 'cancellation'
  /** Called just before the first byte: from then on the server may have received the text. */
  readonly onWrite?: (() => void) | undefined
}

/** Carries JSON texts between the gateway and a server in both directions. */
export interface Pipe {
  /**
   * Sends a text. Resolves when there is room for the next text (backpressure); rejects with a `GatewayError` when the
   * pipe is over, and with the signal's reason after a cancellation.
   */
  send(text: string, posting?: Posting): Promise<void>
  /** Shapes the answer to a request as a fault demands; the returned function undoes this. */
  shape(id: number, shape: AnswerShape): () => void
  /** Ends the pipe and its resources; resolves when nothing is left. Idempotent, never rejects. */
  close(): Promise<void>
}

export interface PipeEvents {
  /** Takes a text. A promise means: wait before the next text (backpressure). */
  message(text: string): Promise<void> | undefined
  /** A text of more than `limit` bytes was discarded; `id`: the id of the answered request, if known. */
  overlong(id: number | undefined, limit: number): void
  /**
   * The pipe has ended; no other method is called later. `words`: the last output of the server besides the texts, such
   * as its standard error.
   */
  closed(error: GatewayError, words?: string): void
}

/** Connects a pipe ready for sending. Rejects with a `GatewayError` after cleaning up. */
export type Connect = (events: PipeEvents, signal: Signal) => Promise<Pipe>

/** The parts and settings of an upstream session. */
export interface Terms {
  readonly server: string
  readonly initializeParams: Readonly<Record<string, unknown>>
  readonly audience: Audience
  /** Whether callers share the upstream session; default false. */
  readonly shared?: boolean
  /** The server's era, default `legacy`; with `auto`, the gateway asks the server. */
  readonly era?: Era | 'auto'
  readonly clock: Clock
  readonly log: Log
  readonly conceal: Conceal
  /** Faults of the handshakes and pings of the upstream session; optional. */
  readonly faults?: Layer | undefined
}
