import type { FaultStatus, Status } from '../../chaos/status.ts'
import type { Millis } from '../../mesh/clock.ts'
import { isObject } from '../../protocol/jsonrpc.ts'
import type { Control, Request } from '../chaos/control.ts'

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
  /** Arms a fault of ours at `target` (SERVER or SERVER/TOOL, globs), for so long. Resolves to its id. */
  inject(target: string, config: Readonly<Record<string, unknown>>, durationMs: Millis): Promise<string>
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
    async inject(target, config, durationMs) {
      const body = { target, config, durationMs }
      const { faultId } = await ask({ method: 'POST', path: '/chaos/inject', body })
      if (typeof faultId === 'string') return faultId
      throw new ControlError('the gateway gave the fault no id')
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
