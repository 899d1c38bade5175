import type { Call } from '../../mesh/call.ts'
import type { Clock } from '../../mesh/clock.ts'
import type { Effect } from '../../mesh/policy.ts'
import type { ChaosEvent } from '../events.ts'
import type { FaultEnvironment } from '../fault.ts'
import type { FaultRegistry } from '../faults/index.ts'
import type { Fault } from '../plan/common.ts'
import type { Locks } from './guard.ts'

/** The parts of the gateway that the chaos mesh needs. */
export interface ControllerParts extends Locks {
  readonly clock: Clock
  readonly faultEnvironment: FaultEnvironment
  /**
   * Returns the effect of running a call again. Without `allowWrites`, only types with `withholds` may hit tools that are not
   * known to be read-only.
   */
  readonly effectOf: (call: Call) => Effect
  /** Whether faults leave a server alone, whatever they match; they leave none unless it is given. */
  readonly isProtected?: (server: string) => boolean
  /** Whether only the list of a server, which is not known, could say which of its tools read; never unless it is given. */
  readonly awaitsList?: (server: string) => boolean
  /** Hears what an operator will want to read about. */
  readonly emit: (event: ChaosEvent) => void
  /** The file in which a kill outlives the process; without one it ends with the process. */
  readonly killRecord?: string | undefined
  /** Where key and head of the journal are kept apart from it; without one they lie beside it. */
  readonly stateDir?: string | undefined
  /** Hears of entries of the journal that will never be written. */
  readonly onDropped?: (count: number) => void
  /** Hears which faults do something to calls from now on, or nothing any more. Must not throw. */
  readonly onTurned?: (faults: readonly Fault[]) => void
  /** The kinds of faults; all that there are, unless told otherwise. */
  readonly registry?: FaultRegistry
}

/** Whether something was done, or why not. */
export type Done = { readonly ok: true } | { readonly ok: false; readonly why: string }
export const DONE: Done = { ok: true }
