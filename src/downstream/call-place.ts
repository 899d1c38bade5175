import type { CallRecord, Holding } from '../mesh/call.ts'
import { hold, letGo } from '../mesh/pause-deadline.ts'
import type { Asked, Quota, Quotas } from './limits/quotas.ts'

/**
 * The place of a call among the calls under way. The call lends its place while its agent is asked, so that calls which wait
 * for answers keep no other calls out. With the answer the call has its place again at once, also when there are too many calls by then.
 */
export class CallPlace implements Holding {
  outer: Holding | undefined
  readonly #record: CallRecord
  readonly #client: string
  readonly #calls: Quota
  #isLent = false

  /** `calls` counts the call already, as one of `client`. */
  constructor(record: CallRecord, client: string, calls: Quota) {
    this.#record = record
    this.#client = client
    this.#calls = calls
  }

  /** The agent is to be asked for the first time. */
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

  /** The call is over: whoever counted it releases its place. */
  end(): void {
    letGo(this.#record, this)
    this.takeBack()
  }
}

/** The same of a call in a session, which counts as a call that waits for its agent meanwhile. */
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
