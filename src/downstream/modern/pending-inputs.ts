import { randomUUID } from 'node:crypto'
import type { Cancel, Clock, Millis } from '../../mesh/clock.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import type { Asked, PendingInputQuota, Quota, Quotas } from '../limits/quotas.ts'
import type { Cancellation } from '../../mesh/cancel.ts'
import { formatDuration } from '../../units/duration.ts'

/** How long a client may take to answer, in milliseconds. */
const INPUT_WAIT_MS: Millis = 5 * 60_000

/** The prefix of request states made by the gateway; other states belong to servers. */
const PREFIX = 'breakwater.'

/** Smallest kept answer that counts against the quota of bytes. The number of waiting calls bounds smaller answers. */
const COUNTED_FROM = 1_024

/** A call that waits for its client's answer: a `ModernCall`. */
export interface PendingInputCall extends Asked {
  readonly signal: Cancellation
}

interface PendingInput<Waiting> {
  readonly modernCall: Waiting
  readonly cancel: Cancel
  /** Counted bytes of the answer of a call that has ended. */
  readonly bytes: number
}

/** Calls that wait for their client's answer, by the `requestState` that the client must return. */
export class PendingInputStore<Waiting extends PendingInputCall> {
  readonly #clock: Clock
  readonly #quota: PendingInputQuota
  readonly #answers: Quota
  readonly #byState = new Map<string, PendingInput<Waiting>>()

  /** The quotas limit the waiting calls, and the bytes of their questions and answers, in total and for each client. */
  constructor(clock: Clock, { pendingInputs, answers }: Pick<Quotas, 'pendingInputs' | 'answers'>) {
    this.#clock = clock
    this.#quota = pendingInputs
    this.#answers = answers
  }

  get size(): number {
    return this.#byState.size
  }

  /** True when the gateway may have made a request state: it has our prefix. */
  isOurs(state: unknown): state is string {
    return typeof state === 'string' && state.startsWith(PREFIX)
  }

  has(state: unknown): boolean {
    return this.#byState.has(state as string)
  }

  /**
   * Stores a call that waits for its client's answer. Returns the state that resumes the call once, or an error when
   * there is no room.
   */
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

  /**
   * Returns the call of a state and removes the state. Returns undefined for an unknown state, or when `fits` returns
   * false; the call then waits on.
   */
  take(state: string, fits: (modernCall: Waiting) => boolean): Waiting | undefined {
    const pending = this.#byState.get(state)
    if (pending === undefined || !fits(pending.modernCall)) return undefined
    pending.cancel()
    this.#leave(state)
    return pending.modernCall
  }

  /**
   * Counts the bytes of an ended call's answer until its client fetches the answer or the wait times out. Returns an
   * error when there is no room; the client gets the error in place of the answer.
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
    const message = `the call has run, but its answer of ${bytes} bytes could not be kept for its client: ${full.message}`
    return gatewayError('overloaded', message, { sent: true })
  }

  /** Takes room for the bytes of a question, until `releaseQuestion`. Returns false when there is no room. */
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
