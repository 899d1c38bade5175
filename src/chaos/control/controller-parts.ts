import type { Call } from '../../mesh/call.ts'
import type { Clock } from '../../mesh/clock.ts'
import type { Effect } from '../../mesh/policy.ts'
import type { ChaosEvent } from '../events.ts'
import type { FaultEnvironment } from '../fault.ts'
import type { FaultRegistry } from '../faults/index.ts'
import type { Fault } from '../plan/common.ts'
import type { Locks } from './guard.ts'

export interface ControllerParts extends Locks {
  readonly clock: Clock
  readonly faultEnvironment: FaultEnvironment
  /**
   * Returns the effect of running a call again. A fault without `allowWrites` hits only read-only tools, unless its
   * type has `withholds`.
   */
  readonly effectOf: (call: Call) => Effect
  /** Returns true for a server that no fault may hit; default: false for all servers. */
  readonly isProtected?: (server: string) => boolean
  /**
   * Returns true while the gateway lacks the tool list that would say which tools of a server are read-only; default:
   * false.
   */
  readonly awaitsList?: (server: string) => boolean
  readonly emit: (event: ChaosEvent) => void
  /** The file in which a kill outlives the process; without a file, the kill ends with the process. */
  readonly killRecord?: string | undefined
  /** The folder for the journal's key file and head file; default: the folder of the journal. */
  readonly stateDir?: string | undefined
  /** Called with the number of journal entries that will never be written. */
  readonly onDropped?: (count: number) => void
  /** Called with the faults whose effect on calls begins or ends. Must not throw. */
  readonly onTurned?: (faults: readonly Fault[]) => void
  /** The fault types; default: all existing types. */
  readonly registry?: FaultRegistry
}

export type Done = { readonly ok: true } | { readonly ok: false; readonly why: string }
export const DONE: Done = { ok: true }
