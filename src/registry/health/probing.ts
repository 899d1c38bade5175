import type { Clock, Millis } from '../../mesh/clock.ts'
import type { GatewayError } from '../../mesh/errors.ts'
import type { Probe, ProbeFailure, ProbeStep } from './probe.ts'

/** One round of discovery as a probe. */
export interface ProbeRound {
  /** Takes a step, and notes how long it takes if it ends well. */
  step<T>(step: ProbeStep, task: () => Promise<T>): Promise<T>
  /** Tells what came of it. */
  end(failure: ProbeFailure | undefined): void
}

/** Makes probes of what discovery does anyway. */
export class Probing {
  readonly #clock: Pick<Clock, 'now' | 'wall'>
  readonly #tell: (probe: Probe) => void

  constructor(clock: Pick<Clock, 'now' | 'wall'>, tell: (probe: Probe) => void) {
    this.#clock = clock
    this.#tell = tell
  }

  begin(): ProbeRound {
    const clock = this.#clock
    const began = { beganAt: clock.wall(), beganNow: clock.now() }
    const took: Partial<Record<ProbeStep, Millis>> = {}
    return {
      async step(step, task) {
        const from = clock.now()
        const result = await task()
        took[step] = clock.now() - from
        return result
      },
      end: (failure) => this.#tell({ ...began, took, failure }),
    }
  }

  /** The session of the gateway has ended by itself: when its process has, that is a finding, even if the next one comes up. */
  ended({ cause, message }: GatewayError): void {
    if (cause !== 'process_exit') return
    const failure = { reason: cause, message, isCertain: true }
    const began = { beganAt: this.#clock.wall(), beganNow: this.#clock.now() }
    this.#tell({ ...began, took: {}, failure })
  }
}
