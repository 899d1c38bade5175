import type { Signal } from './cancel.ts'
import type { Clock, Millis } from './clock.ts'

/** Where on a connection something happens: before the first byte of a reply, behind bytes of its body, or behind messages. */
export type WirePlace = 'head' | { readonly bytes: number } | { readonly messages: number }

/** An incident on a connection. */
export interface WireIncident {
  /**
   * `reset`: it is reset, and what was promised of the reply does not come. `close`: it ends. `garble`: the next message is
   * no JSON. `stall`: nothing comes for `stallMs`, and then everything.
   */
  readonly kind: 'reset' | 'close' | 'garble' | 'stall'
  /** In a stream of events, messages are events with data; a response is never passed, and neither is another body. */
  readonly at: WirePlace
  /** When it happens at the latest after the connection was made, or towards an agent after the call came, in milliseconds. */
  readonly latestMs?: Millis | undefined
  /** Only of a `stall`. */
  readonly stallMs?: Millis
}

/** A fault's work on the bytes of one HTTP reply on its way; one object for each reply. */
export interface WireShape {
  readonly clock: Clock
  /** From then on all bytes flow as they come. */
  readonly released: Signal
  /** So many bytes of the body pass at a time, and the next ones wait for so long after them. */
  readonly pace?: { readonly bytes: number; readonly gapMs: Millis }
  readonly incident?: WireIncident
  /** Hears of each time that bytes are held back, until the promise settles. */
  readonly holds?: (settled: Promise<void>) => void
  /** Called when nothing more will be done to the reply. */
  readonly over?: () => void
  /** Written by whoever carries it out. */
  readonly done: {
    /** Bytes of the body, and messages of a stream of events, that have passed. */
    bytes: number
    messages: number
    /** Whether the incident has happened, or the pace has held something back. */
    hasHappened: boolean
  }
}

/** A flaw for which a client may refuse a server's certificate. */
export type CertificateFlaw = 'expired' | 'self_signed' | 'wrong_host'

/** How a connection fails before anything is sent over it. */
export type ConnectFailure =
  /** The host's name cannot be looked up; the resolver says so once `after` has settled, which never rejects. */
  | { readonly of: 'name'; readonly code: 'ENOTFOUND' | 'EAI_AGAIN'; readonly after: Promise<unknown> }
  /** The server's certificate is not to be trusted. */
  | { readonly of: 'certificate'; readonly flaw: CertificateFlaw }
  /** The server refuses the TLS handshake. */
  | { readonly of: 'handshake' }

/** Ends each process of a server soon after it was started. */
export interface CrashLoop {
  readonly signal: NodeJS.Signals
  /** How long a process lives, in milliseconds; 0: it gets the signal as soon as it runs. */
  readonly afterMs: Millis
  /** Once it has aborted, processes live on. */
  readonly over: Signal
}

/**
 * A fault's work on the message that answers one call, where the answers of all calls come over one stream: over the
 * standard output of a process, or the event stream of HTTP+SSE. One object for each answer.
 */
export interface AnswerShape {
  readonly clock: Clock
  /** From then on the answer passes as it came; one that is held back goes on at once. */
  readonly released: Signal
  /** Called when the answer has come, at most once, with its text as it came: says what comes in place of it. */
  readonly take: (text: string) => ShapedAnswer
}

/** The texts and bytes that come in place of an answer. */
export interface ShapedAnswer {
  /** Each of them a line, or an event, of its own. */
  readonly texts: readonly string[]
  /** Bytes that come directly before the first of them, in the same line unless they end one; only of a process. */
  readonly before?: Buffer
  /** How long they are held back, in milliseconds; what comes behind them passes meanwhile. */
  readonly holdMs?: Millis
  /** Hears that they are held back, until the promise settles; not when too much is held back already. */
  readonly holds?: (over: Promise<void>) => void
}

/** The work of faults on the bytes of a server's reply to one call. */
export interface CallWire {
  /** The outermost first; only for servers behind Streamable HTTP. */
  readonly shapes?: readonly WireShape[]
  /** Where the answers of all calls share one stream: over stdio and HTTP+SSE. */
  readonly answer?: AnswerShape
}

/** The bytes of a reply to an agent, or of a standing stream, as faults get at them. */
export interface ChannelWire {
  /** Adds a fault; one that is added later works before it. False when a part of the reply is written already. */
  shape?(shape: WireShape): boolean
  /** How many bytes stand around a message of the reply, as it goes by now: 0 unless it is a stream of events. */
  readonly framing?: number
  /**
   * Has a stream that is taken up again begin in the wrong place, by so many messages: earlier below 0, and later above. Only of
   * streams for what belongs to no call, in the era that resumes them; before they are asked for.
   */
  resume?(shift: number): void
}
