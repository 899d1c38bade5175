import type { AnswerShape } from '../../mesh/wire-shape.ts'
import type { Signal } from '../../mesh/cancel.ts'
import type { GatewayError } from '../../mesh/errors.ts'
import type { Layer } from '../../mesh/call.ts'
import type { Clock } from '../../mesh/clock.ts'
import type { Era } from '../../protocol/versions.ts'
import type { Log } from '../../telemetry/log.ts'
import type { Conceal } from '../server-words.ts'
import type { Audience } from '../shared/audience.ts'

/** Options for sending a text. */
export interface Posting {
  /** Cancels the text while waiting for its turn. */
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
   * Sends one text. Resolves when there is room for the next one (backpressure); rejects with a
   * `GatewayError` when the pipe is over, and with the signal's reason when the text was taken back.
   */
  send(text: string, posting?: Posting): Promise<void>
  /** Has the answer to a request with this id come as a fault wants it; what it returns leaves it as it is. */
  shape(id: number, shape: AnswerShape): () => void
  /** Ends the pipe and what stands behind it; resolves when nothing is left. Idempotent, never rejects. */
  close(): Promise<void>
}

/** Takes what comes out of a pipe. */
export interface PipeEvents {
  /** One text came. A promise means "wait for it before the next one" (backpressure). */
  message(text: string): Promise<void> | undefined
  /** A text of more than `limit` bytes was thrown away; `id` is that of the request it answers, if known. */
  overlong(id: number | undefined, limit: number): void
  /** The pipe has ended. No other method is called after it. `words`: what the other side said last, beside the texts. */
  closed(error: GatewayError, words?: string): void
}

/** Makes a pipe that is ready to send. Rejects with a `GatewayError`, and leaves nothing behind then. */
export type Connect = (events: PipeEvents, signal: Signal) => Promise<Pipe>

/** The parts and settings of an upstream session. */
export interface Terms {
  /** The server's name in the registry. */
  readonly server: string
  /** The `initialize` params that the server is told. */
  readonly initializeParams: Readonly<Record<string, unknown>>
  readonly audience: Audience
  /** Whether callers share the upstream session; false unless given. */
  readonly shared?: boolean
  /** The era that the server speaks, `legacy` unless given; `auto` finds out. */
  readonly era?: Era | 'auto'
  readonly clock: Clock
  readonly log: Log
  /** Takes what is secret out of what the server says. */
  readonly conceal: Conceal
  /** Faults of the handshakes and pings that the upstream session needs for itself; none unless given. */
  readonly faults?: Layer | undefined
}
