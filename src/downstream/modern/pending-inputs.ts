import { randomUUID } from 'node:crypto'
import type { Cancel, Clock, Millis } from '../../mesh/clock.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import type { Asked, PendingInputQuota, Quota, Quotas } from '../limits/quotas.ts'
import type { Cancellation } from '../../mesh/cancel.ts'
import { formatDuration } from '../../units/duration.ts'

/** How long a client may take to answer, in milliseconds. */
const INPUT_WAIT_MS: Millis = 5 * 60_000

/** The beginning of our own request states: others are the servers' business. */
const PREFIX = 'breakwater.'

/** From this length on an answer that waits counts, in bytes: what is smaller is bounded by the number of calls. */
const COUNTED_FROM = 1_024

/** A call that waits for input: a `ModernCall`. */
export interface PendingInputCall extends Asked {
  readonly signal: Cancellation
}

interface PendingInput<Waiting> {
  readonly modernCall: Waiting
  readonly cancel: Cancel
  /** The bytes that the answer to a call that has ended counts as. */
  readonly bytes: number
}

/** Calls whose server waits for an answer of the client, by the `requestState` that the client brings back. */
export class PendingInputStore<Waiting extends PendingInputCall> {
  readonly #clock: Clock
  readonly #quota: PendingInputQuota
  readonly #answers: Quota
  readonly #byState = new Map<string, PendingInput<Waiting>>()

  /** How many calls may wait for input at once, and how many bytes of their questions and answers, of all clients and of one. */
  constructor(clock: Clock, { pendingInputs, answers }: Pick<Quotas, 'pendingInputs' | 'answers'>) {
    this.#clock = clock
    this.#quota = pendingInputs
    this.#answers = answers
  }

  get size(): number {
    return this.#byState.size
  }

  /** Whether a request state claims to be one of ours. */
  isOurs(state: unknown): state is string {
    return typeof state === 'string' && state.startsWith(PREFIX)
  }

  /** Whether a call waits under a request state. */
  has(state: unknown): boolean {
    return this.#byState.has(state as string)
  }

  /** Keeps a call that waits for input; gives the state that takes it up again, once. An error when there is no room. */
  enter(modernCall: Waiting): string | GatewayError {
    const full = this.#quota.refusal(modernCall)
    if (full !== undefined) return full
    this.#quota.take(modernCall)
    const state = `${PREFIX}${randomUUID()}`
    const cancel = this.#clock.after(INPUT_WAIT_MS, () => {
      this.#leave(state)
      modernCall.signal.abort(
        gatewayError('cancelled', `the client did not answer within ${formatDuration(INPUT_WAIT_MS)}`, {
          sent: true,
        }),
      )
    })
    this.#byState.set(state, { modernCall: modernCall, cancel, bytes: 0 })
    return state
  }

  /** The call behind a state, which is used up by this; a request that the call does not fit leaves it where it is. */
  take(state: string, fits: (modernCall: Waiting) => boolean): Waiting | undefined {
    const pending = this.#byState.get(state)
    if (pending === undefined || !fits(pending.modernCall)) return undefined
    pending.cancel()
    this.#leave(state)
    return pending.modernCall
  }

  /**
   * A call has ended by itself: its client may still come for the answer of so many bytes, until the time is over. An
   * error for it when there is no room for the answer.
   */
  keep(state: string, bytes: number): GatewayError | undefined {
    const pending = this.#byState.get(state)
    if (pending === undefined) return undefined
    pending.cancel()
    const { modernCall: modernCall } = pending
    const full = bytes < COUNTED_FROM ? undefined : this.#answers.refusal(modernCall.client, bytes)
    const counted = bytes < COUNTED_FROM || full !== undefined ? 0 : bytes
    if (counted > 0) this.#answers.take(modernCall.client, counted)
    const cancel = this.#clock.after(INPUT_WAIT_MS, () => this.#leave(state))
    this.#byState.set(state, { modernCall: modernCall, cancel, bytes: counted })
    if (full === undefined) return undefined
    const message = `the call has run, and its answer of ${bytes} bytes was not kept until its client came for it: ${full.message}`
    return gatewayError('overloaded', message, { sent: true })
  }

  /** Makes room for the bytes of a question, until `releaseQuestion`. False when there is none. */
  holdQuestion(client: string, bytes: number): boolean {
    if (this.#answers.refusal(client, bytes) !== undefined) return false
    this.#answers.take(client, bytes)
    return true
  }

  releaseQuestion(client: string, bytes: number): void {
    this.#answers.release(client, bytes)
  }

  closeAll(): void {
    for (const [state, { modernCall: modernCall, cancel }] of this.#byState) {
      cancel()
      this.#leave(state)
      modernCall.signal.abort(gatewayError('shutting_down', 'the gateway is stopping', { sent: true }))
    }
  }

  #leave(state: string): void {
    const pending = this.#byState.get(state)
    if (pending === undefined) return
    const { modernCall: modernCall, bytes } = pending
    this.#byState.delete(state)
    this.#quota.release(modernCall)
    if (bytes > 0) this.#answers.release(modernCall.client, bytes)
  }
}
