import { randomUUID } from 'node:crypto'
import type { Cancel, Clock, Millis } from '../../mesh/clock.ts'
import { gatewayError } from '../../mesh/errors.ts'
import type { Exchange } from './exchange.ts'

/** Most calls that wait for answers of their clients at once. */
const MAX_PARKED = 1_000

/** How long a client may take to answer, in milliseconds. */
const PARK_MS: Millis = 5 * 60_000

/** What our own request states begin with: others are the servers' business. */
const PREFIX = 'breakwater.'

/** Calls whose server waits for an answer of the client, by the `requestState` that the client brings back. */
export class Parking {
  readonly #clock: Clock
  readonly #byState = new Map<string, { readonly exchange: Exchange; readonly cancel: Cancel }>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  get size(): number {
    return this.#byState.size
  }

  /** Whether a request state claims to be one of ours. */
  isOurs(state: unknown): state is string {
    return typeof state === 'string' && state.startsWith(PREFIX)
  }

  /** Parks a call; gives the state that takes it up again, once. Undefined when there is no room. */
  enter(exchange: Exchange): string | undefined {
    if (this.#byState.size >= MAX_PARKED) return undefined
    const state = `${PREFIX}${randomUUID()}`
    const cancel = this.#clock.after(PARK_MS, () => {
      this.#byState.delete(state)
      exchange.signal.abort(
        gatewayError('cancelled', `the client did not answer within ${PARK_MS} ms`, { sent: true }),
      )
    })
    this.#byState.set(state, { exchange, cancel })
    return state
  }

  /** The call behind a state, which is used up by this; a request that the call does not fit leaves it where it is. */
  take(state: string, fits: (exchange: Exchange) => boolean): Exchange | undefined {
    const parked = this.#byState.get(state)
    if (parked === undefined || !fits(parked.exchange)) return undefined
    parked.cancel()
    this.#byState.delete(state)
    return parked.exchange
  }

  /** A call has ended by itself: its client may still come for the answer, until the time is over. */
  keep(state: string): void {
    const parked = this.#byState.get(state)
    if (parked === undefined) return
    parked.cancel()
    this.#byState.set(state, {
      ...parked,
      cancel: this.#clock.after(PARK_MS, () => this.#byState.delete(state)),
    })
  }

  closeAll(): void {
    for (const { exchange, cancel } of this.#byState.values()) {
      cancel()
      exchange.signal.abort(gatewayError('shutting_down', 'the gateway is stopping', { sent: true }))
    }
    this.#byState.clear()
  }
}
