import type { Signal } from './cancel.ts'
import type { Clock, Millis } from './clock.ts'

/** A place in a reply: before the first byte, after some bytes of the body, or after some messages. */
export type WirePlace = 'head' | { readonly bytes: number } | { readonly messages: number }

export interface WireIncident {
  /**
   * `reset`: resets the connection before the reply is complete. `close`: ends the connection. `garble`: the next
   * message is not JSON. `stall`: nothing comes for `stallMs`, then everything.
   */
  readonly kind: 'reset' | 'close' | 'garble' | 'stall'
  /** `messages` counts events with data. The incident comes before the response, or any other body, at the latest. */
  readonly at: WirePlace
  /** Latest time of the incident, in milliseconds after connecting to a server, or after an agent's call came. */
  readonly latestMs?: Millis | undefined
  /** Only for `stall`. */
  readonly stallMs?: Millis
}

/** How a fault changes the bytes of an HTTP reply; one object per reply. */
export interface WireShape {
  readonly clock: Clock
  /** When aborted, all bytes flow freely. */
  readonly released: Signal
  /** `bytes` of the body pass at a time; the next bytes wait for `gapMs`. */
  readonly pace?: { readonly bytes: number; readonly gapMs: Millis }
  readonly incident?: WireIncident
  /** Called whenever bytes are held back; the bytes are held until the promise settles. */
  readonly holds?: (settled: Promise<void>) => void
  /** Called when the fault has finished with the reply. */
  readonly over?: () => void
  /** Written by the code that carries out the shape. */
  readonly done: {
    /** Bytes of the body and messages of an event stream that have passed. */
    bytes: number
    messages: number
    /** Whether the incident has happened, or the pace has held back bytes. */
    hasHappened: boolean
  }
}

/** A flaw for which a client may refuse a server's certificate. */
export type CertificateFlaw = 'expired' | 'self_signed' | 'wrong_host'

/** How a connection fails before sending anything. */
export type ConnectFailure =
  /** The host's name cannot be resolved; the resolver fails once `after` settles. `after` never rejects. */
  | { readonly of: 'name'; readonly code: 'ENOTFOUND' | 'EAI_AGAIN'; readonly after: Promise<unknown> }
  /** The server's certificate is not trusted. */
  | { readonly of: 'certificate'; readonly flaw: CertificateFlaw }
  /** The server refuses the TLS handshake. */
  | { readonly of: 'handshake' }

/** Ends each process of a server soon after its start. */
export interface CrashLoop {
  readonly signal: NodeJS.Signals
  /** How long a process lives, in milliseconds; 0: the signal comes as soon as the process runs. */
  readonly afterMs: Millis
  /** When aborted, the fault ends no more processes. */
  readonly over: Signal
}

/**
 * How a fault changes the answer to one call, on a stream shared by all calls. Such a stream is a process's standard
 * output, or the event stream of HTTP+SSE. One object per answer.
 */
export interface AnswerShape {
  readonly clock: Clock
  /** When aborted, the answer passes unchanged, and a held answer goes out at once. */
  readonly released: Signal
  /** Called at most once, when the answer has come; returns the replacement for its text. */
  readonly take: (text: string) => ShapedAnswer
}

/** The texts and bytes sent in place of an answer. */
export interface ShapedAnswer {
  /** Each text is a line or event of its own. */
  readonly texts: readonly string[]
  /** Bytes directly before the first text, in the same line unless the bytes end a line; only for processes. */
  readonly before?: Buffer
  /** How long the answer is held back, in milliseconds; later messages pass meanwhile. */
  readonly holdMs?: Millis
  /**
   * Called when the answer is held back; the answer is held until the promise settles. Not called when too much is held
   * back already.
   */
  readonly holds?: (over: Promise<void>) => void
}

/** How faults change the bytes of a server's reply to a call. */
export interface CallWire {
  /** Outermost first; only for servers behind Streamable HTTP. */
  readonly shapes?: readonly WireShape[]
  /** Only where all answers share a stream: stdio and HTTP+SSE. */
  readonly answer?: AnswerShape
}

/** The bytes of a reply to an agent, or of a standing stream, as seen by faults. */
export interface ChannelWire {
  /** Adds a fault; a fault added later acts earlier. Returns false when part of the reply is already written. */
  shape?(shape: WireShape): boolean
  /** Bytes of framing around a message of the reply in its present form; 0 unless an event stream. */
  readonly framing?: number
  /**
   * Makes a resumed stream begin in the wrong place, by `shift` messages: earlier below 0, later above 0. Only for
   * streams outside of calls, in the era with resumption, and before the stream begins.
   */
  resume?(shift: number): void
}
