import type { Signal } from './cancel.ts'
import type { Clock, Millis } from './clock.ts'

/**
 * What a fault does to the message that answers one call, where the answers of all calls come over one stream: over the standard
 * output of a process, or the event stream of HTTP+SSE. One object for each answer.
 */
export interface AnswerShape {
  readonly clock: Clock
  /** From then on the answer passes as it came; one that is held back goes on at once. */
  readonly released: Signal
  /** Called when the answer has come, at most once, with its text as it came: says what comes in place of it. */
  readonly take: (text: string) => ShapedAnswer
}

/** What comes in place of an answer. */
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
