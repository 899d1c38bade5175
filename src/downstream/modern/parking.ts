import { randomUUID } from 'node:crypto'
import type { Cancel, Clock, Millis } from '../../mesh/clock.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import type { Quota } from '../quotas.ts'
import type { Exchange } from './exchange.ts'

/** How long a client may take to answer, in milliseconds. */
const PARK_MS: Millis = 5 * 60_000

/** What our own request states begin with: others are the servers' business. */
const PREFIX = 'breakwater.'

/** Calls whose server waits for an answer of the client, by the `requestState` that the client brings back. */
export class Parking {
  readonly #clock: Clock
  readonly #quota: Quota
  readonly #byState = new Map<string, { readonly exchange: Exchange; readonly cancel: Cancel }>()

  /** `quota`: how many calls may be parked at once, of all clients and of one. */
  constructor(clock: Clock, quota: Quota) {
    this.#clock = clock
    this.#quota = quota
  }

  get size(): number {
    return this.#byState.size
  }

  /** Whether a request state claims to be one of ours. */
  isOurs(state: unknown): state is string {
    return typeof state === 'string' && state.startsWith(PREFIX)
  }

  /** Parks a call; gives the state that takes it up again, once. An error when there is no room. */
  enter(exchange: Exchange): string | GatewayError {
    const full = this.#quota.refusal(exchange.client)
    if (full !== undefined) return full
    this.#quota.take(exchange.client)
    const state = `${PREFIX}${randomUUID()}`
    const cancel = this.#clock.after(PARK_MS, () => {
      this.#leave(state, exchange)
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
    this.#leave(state, parked.exchange)
    return parked.exchange
  }

  /** A call has ended by itself: its client may still come for the answer, until the time is over. */
  keep(state: string): void {
    const parked = this.#byState.get(state)
    if (parked === undefined) return
    parked.cancel()
    this.#byState.set(state, {
      ...parked,
      cancel: this.#clock.after(PARK_MS, () => this.#leave(state, parked.exchange)),
    })
  }

  closeAll(): void {
    for (const [state, { exchange, cancel }] of this.#byState) {
      cancel()
      this.#leave(state, exchange)
      exchange.signal.abort(gatewayError('shutting_down', 'the gateway is stopping', { sent: true }))
    }
  }

  #leave(state: string, { client }: Exchange): void {
    if (this.#byState.delete(state)) this.#quota.release(client)
  }
}
