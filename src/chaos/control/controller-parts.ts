import type { Call } from '../../mesh/call.ts'
import type { Clock } from '../../mesh/clock.ts'
import type { Effect } from '../../mesh/policy.ts'
import type { ChaosEvent } from '../events.ts'
import type { World } from '../fault.ts'
import type { FaultRegistry } from '../faults/index.ts'
import type { Locks } from './guard.ts'

/** What the chaos mesh needs of the gateway around it. */
export interface ControllerParts extends Locks {
  readonly clock: Clock
  readonly world: World
  /** What running a call again would do: only what is known to read may be hit without leave. */
  readonly effectOf: (call: Call) => Effect
  /** The arm of a running experiment that a call belongs to. */
  readonly armOf?: (call: Call) => string | undefined
  /** Hears what an operator will want to read about. */
  readonly emit: (event: ChaosEvent) => void
  /** The kinds of faults; all that there are, unless told otherwise. */
  readonly registry?: FaultRegistry
}

/** Whether something was done, or why not. */
export type Done = { readonly ok: true } | { readonly ok: false; readonly why: string }
export const DONE: Done = { ok: true }
