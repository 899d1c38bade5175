import type { Signal } from './cancel.ts'
import type { Millis } from './clock.ts'

/** Ends each process of a server soon after it was started. */
export interface CrashLoop {
  readonly signal: NodeJS.Signals
  /** How long a process lives, in milliseconds; 0: it gets the signal as soon as it runs. */
  readonly afterMs: Millis
  /** Once it has aborted, processes live on. */
  readonly over: Signal
}
