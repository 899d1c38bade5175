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
   * Returns the effect of running a call again. Without `allowWrites`, only types with `withholds` may hit tools not
   * known to be read-only.
   */
  readonly effectOf: (call: Call) => Effect
  /** Whether faults leave a server alone, whatever they match; default: never. */
  readonly isProtected?: (server: string) => boolean
  /** Whether the server's missing tool list alone could say which of its tools only read; default: never. */
  readonly awaitsList?: (server: string) => boolean
  readonly emit: (event: ChaosEvent) => void
  /** The file in which a kill outlives the process; without a file, the kill ends with the process. */
  readonly killRecord?: string | undefined
  /** The folder for key and head, apart from the journal; default: the journal's folder. */
  readonly stateDir?: string | undefined
  /** Hears of journal entries that will never be written. */
  readonly onDropped?: (count: number) => void
  /** Hears of faults whose effect on calls begins or ends. Must not throw. */
  readonly onTurned?: (faults: readonly Fault[]) => void
  /** The fault types; default: all existing types. */
  readonly registry?: FaultRegistry
}

export type Done = { readonly ok: true } | { readonly ok: false; readonly why: string }
export const DONE: Done = { ok: true }
