import type { FaultStatus, Status } from '../../chaos/control/status.ts'
import type { Millis } from '../../mesh/clock.ts'
import { isObject } from '../../protocol/jsonrpc.ts'
import type { Control, Request } from '../chaos/control.ts'
import type { Aimed } from './aimed.ts'

/** The gateway said no, or nothing at all; the message says what to do about it. */
export class ControlError extends Error {}

export type FaultCounts = Pick<
  FaultStatus,
  'id' | 'type' | 'decided' | 'hits' | 'concurrent' | 'masked' | 'surfaced' | 'escaped'
>

/** As much of `GET /admin/chaos` as a run looks at. */
export interface ChaosState extends Pick<Status, 'state' | 'mode' | 'engineErrors'> {
  readonly faults: readonly FaultCounts[]
}

/** The faults of a running gateway. All of it rejects with a `ControlError`. */
export interface Faults {
  state(): Promise<ChaosState>
  /** Arms a fault of ours for so long, or for as long as the gateway allows. */
  inject(fault: Aimed, durationMs: Millis): Promise<{ readonly id: string; readonly durationMs: Millis }>
  /** Ends a fault; one that has ended already is fine. */
  clear(id: string): Promise<void>
}

export function faultsAt(control: Control): Faults {
  async function ask(request: Request): Promise<Record<string, unknown>> {
    const answered = await control(request)
    if (!answered.ok) throw new ControlError(answered.message)
    return isObject(answered.value) ? answered.value : {}
  }
  const faults: Faults = {
    async state() {
      const state = await ask({ method: 'GET', path: '/admin/chaos' })
      if (Array.isArray(state.faults)) return state as unknown as ChaosState
      throw new ControlError('the gateway does not say which faults there are')
    },
    async inject(fault, wantedMs) {
      const body = { ...fault, durationMs: wantedMs }
      const { faultId, durationMs } = await ask({ method: 'POST', path: '/chaos/inject', body })
      if (typeof faultId !== 'string') throw new ControlError('the gateway gave the fault no id')
      return { id: faultId, durationMs: typeof durationMs === 'number' ? durationMs : wantedMs }
    },
    async clear(faultId) {
      const cleared = await control({ method: 'POST', path: '/chaos/clear', body: { faultId } })
      if (cleared.ok) return
      const { faults: listed } = await faults.state()
      if (listed.some(({ id }) => id === faultId)) throw new ControlError(cleared.message)
    },
  }
  return faults
}
