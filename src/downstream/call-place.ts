import type { CallRecord, Holding } from '../mesh/call.ts'
import { hold, letGo } from '../mesh/pause-deadline.ts'
import type { Asked, Quota, Quotas } from './limits/quotas.ts'

/**
 * The place of a call among the calls in progress. While the agent is asked, the call lends its place, so waiting calls
 * keep no other calls out. With the answer the call takes its place back at once, even above the limit.
 */
export class CallPlace implements Holding {
  outer: Holding | undefined
  readonly #record: CallRecord
  readonly #client: string
  readonly #calls: Quota
  #isLent = false

  /** `calls` already counts the call, for `client`. */
  constructor(record: CallRecord, client: string, calls: Quota) {
    this.#record = record
    this.#client = client
    this.#calls = calls
  }

  /** Called before the agent is asked for the first time. */
  begin(): this {
    hold(this.#record, this)
    return this
  }

  get isLent(): boolean {
    return this.#isLent
  }

  lend(): void {
    if (!this.#isLent) this.#calls.release(this.#client)
    this.#isLent = true
  }

  takeBack(): undefined {
    if (this.#isLent) this.#calls.take(this.#client)
    this.#isLent = false
  }

  /** Ends the call: its quota then releases the place. */
  end(): void {
    letGo(this.#record, this)
    this.takeBack()
  }
}

/** The place of a call in a session; while lent, the call counts as waiting for its agent. */
export class SessionCallPlace extends CallPlace {
  readonly #asked: Asked
  readonly #pendingInputs: Quotas['pendingInputs']

  constructor(
    record: CallRecord,
    asked: Asked,
    { calls, pendingInputs }: Pick<Quotas, 'calls' | 'pendingInputs'>,
  ) {
    super(record, asked.client, calls)
    this.#asked = asked
    this.#pendingInputs = pendingInputs
  }

  override lend(): void {
    if (!this.isLent) this.#pendingInputs.take(this.#asked)
    super.lend()
  }

  override takeBack(): undefined {
    if (this.isLent) this.#pendingInputs.release(this.#asked)
    super.takeBack()
  }
}
