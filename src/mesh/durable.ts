import type { Millis } from './clock.ts'
import type { StateKey } from './state-key.ts'

/** A record that an earlier process left. */
export interface DurableRecord {
  readonly id: string
  /** As `JSON.parse` read it. */
  readonly value: unknown
  /** When it counts no more, in milliseconds since the Unix epoch. */
  readonly expiresAt: Millis
}

/** The records of one owner. Nothing here throws or rejects: a call never fails for what could not be kept. */
export interface DurableRecords {
  /** What an earlier process left and what counts still, the soonest to expire first. Gives each record out once. */
  take(): readonly DurableRecord[]
  /**
   * Keeps a record, in place of an earlier one of its id. Resolves as soon as it would outlive a kill of the process,
   * or when it is clear that it cannot be kept now. `value` has to be JSON; `expiresAt` is wall time, in milliseconds.
   */
  put(id: string, value: unknown, expiresAt: Millis): Promise<void>
  delete(id: string): void
}

/** Where records outlive the process. */
export interface DurableStore {
  of(owner: Pick<StateKey, 'kind' | 'set' | 'server'>): DurableRecords
}
