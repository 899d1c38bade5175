import type { CallRecord, Holding } from '../mesh/call.ts'
import { hold, letGo } from '../mesh/pause-deadline.ts'
import type { Asked, Quota, Quotas } from './limits/quotas.ts'

/**
 * A call's place in the quota of calls in progress. While the agent answers a server's question, the call gives its
 * place back to the quota, so waiting calls block no other calls. After the answer the call takes its place again at
 * once, even above the limit.
 */
export class CallPlace implements Holding {
  outer: Holding | undefined
  readonly #record: CallRecord
  readonly #client: string
  readonly #calls: Quota
  #isLent = false

  /** `calls` already counts the call as a call of `client`. */
  constructor(record: CallRecord, client: string, calls: Quota) {
    this.#record = record
    this.#client = client
    this.#calls = calls
  }

  /** Lets the call's record lend the place. The caller must call this before the agent gets its first question. */
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

  /** Ends the lending: takes a lent place back, so that the quota can release it at the end of the call. */
  end(): void {
    letGo(this.#record, this)
    this.takeBack()
  }
}

/** The place of a call in a session. While the place is lent, the quota `pendingInputs` counts the call. */
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
