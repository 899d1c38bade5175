import type { Signal } from './cancel.ts'
import type { Clock, Millis } from './clock.ts'

/** Where on a connection something happens: before the first byte of a reply, behind bytes of its body, or behind messages. */
export type WirePlace = 'head' | { readonly bytes: number } | { readonly messages: number }

/** What happens to a connection. */
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

/** What a fault does to the bytes of one HTTP reply on its way; one object for each reply. */
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
