import type { Clock, Millis } from '../../mesh/clock.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import type { Log } from '../../telemetry/log.ts'
import { whenAborted } from '../failure.ts'

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

/** After the first crash, in milliseconds; each further one doubles it. */
const FIRST_PAUSE_MS = 1_000
const LONGEST_PAUSE_MS = 30_000

/** A process that stayed up for so long was not in a crash loop, in milliseconds. */
const STABLE_MS = 30_000

/** Says when a process that crashed may be started again. Waits for nothing itself. */
export class RestartGate {
  readonly #clock: Clock
  #startedAt: Millis = 0
  #pauseMs: Millis = 0
  #opensAt: Millis = -Infinity

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** How long the next start has to wait, in milliseconds; 0 when it may go ahead. */
  get waitMs(): Millis {
    return Math.max(0, this.#opensAt - this.#clock.now())
  }

  /** The process was started. */
  started(): void {
    this.#startedAt = this.#clock.now()
  }

  /** It ended without being asked to, or never got through its handshake. */
  crashed(): void {
    const now = this.#clock.now()
    const stable = now - this.#startedAt >= STABLE_MS
    this.#pauseMs =
      stable || this.#pauseMs === 0 ? FIRST_PAUSE_MS : Math.min(this.#pauseMs * 2, LONGEST_PAUSE_MS)
    this.#opensAt = now + this.#pauseMs
  }
}
