import type { Clock } from '../../mesh/clock.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import type { Log } from '../../telemetry/log.ts'
import { whenAborted } from '../failure.ts'
import { RestartGate } from './restart-gate.ts'

/** Starts processes, each unless the one before it has just crashed. */
export class Restarts {
  readonly #clock: Clock
  readonly #log: Log
  /** Whose process may be started when. A caller's own is forgotten with the caller. */
  readonly #gates = new WeakMap<object, RestartGate>()

  constructor(clock: Clock, log: Log) {
    this.#clock = clock
    this.#log = log
  }

  /**
   * Opens a conversation with a process of `owner`, who it is for. Rejects with a `GatewayError`; one that
   * is to be waited for says how long.
   */
  async open<Held extends { readonly ended: AbortSignal }>(
    owner: object,
    open: () => Promise<Held>,
  ): Promise<Held> {
    const gate = this.#gateOf(owner)
    const retryAfterMs = Math.ceil(gate.waitMs)
    if (retryAfterMs > 0) {
      const message = `the server's process ended and is not started again before ${retryAfterMs} ms have passed`
      throw gatewayError('upstream_unavailable', message, { retryAfterMs })
    }
    gate.started()
    try {
      const held = await open()
      whenAborted(held.ended, (error) => {
        if (error.reason !== 'cancelled') this.#crashed(gate, error)
      })
      return held
    } catch (error) {
      throw this.#crashed(gate, error as GatewayError)
    }
  }

  #crashed(gate: RestartGate, error: GatewayError): GatewayError {
    gate.crashed()
    const retryAfterMs = Math.ceil(gate.waitMs)
    this.#log.warn({ reason: error.reason, retryAfterMs }, error.message)
    return { ...error, retryAfterMs }
  }

  #gateOf(owner: object): RestartGate {
    const gate = this.#gates.get(owner) ?? new RestartGate(this.#clock)
    this.#gates.set(owner, gate)
    return gate
  }
}
