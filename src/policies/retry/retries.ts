import type { Call, Outcome, RetryRefusal, Service } from '../../mesh/call.ts'
import { isFailure, wasNeverDelivered } from '../../mesh/classify.ts'
import { gatewayError, isGatewayError } from '../../mesh/errors.ts'
import type { Kit, Scope } from '../../mesh/policy.ts'
import { noteOverruled } from '../../mesh/record.ts'
import { fits, waitBefore, type Backoff } from './backoff.ts'
import type { RetryBudgets } from './budgets.ts'
import { nextTry, withSent } from './next-try.ts'
import { isWorthRetrying, ruleAgainst } from './rules.ts'

export interface RetryParts extends Backoff {
  /** Most retries of one call. */
  readonly attempts: number
  readonly incorrect: boolean
  readonly kit: Kit
  readonly scope: Scope
  readonly budgets: RetryBudgets
}

/** What follows on the first failure of a call: waits and further tries, until one of them is to be told. */
export class Retries {
  readonly #call: Call
  readonly #next: Service
  readonly #parts: RetryParts
  readonly #hedgesBefore: number
  #retries = 0
  /** Whether any try may have run. */
  #sent = false
  /** The latest answer that came, though wrong: better than none. */
  #wrong: Outcome | undefined

  /** `hedgesBefore`: what the call's record counted when it came here. */
  constructor(call: Call, next: Service, parts: RetryParts, hedgesBefore: number) {
    this.#call = call
    this.#next = next
    this.#parts = parts
    this.#hedgesBefore = hedgesBefore
  }

  /** What becomes of the call after a try that ended so. */
  after(outcome: Outcome): Outcome | Promise<Outcome> {
    const { kit, budgets, incorrect } = this.#parts
    const { signal, record } = this.#call
    this.#sent ||= !wasNeverDelivered(outcome)
    if (signal.aborted || !isWorthRetrying(outcome, incorrect)) return this.#told(outcome)
    const waitMs = waitBefore(this.#retries, this.#call, outcome, this.#parts, kit.dice)
    record.retryRefused = this.#refusal(outcome, waitMs)
    if (record.retryRefused !== undefined) return this.#told(outcome)
    if (outcome.kind === 'answered' && outcome.verdict !== 'rpc_error') this.#wrong = outcome
    const since = kit.clock.now()
    return kit.clock.sleep(waitMs, signal).then(
      () => {
        record.waitedMs += kit.clock.now() - since
        return this.#again(outcome)
      },
      (reason: unknown) => {
        budgets.release()
        return this.#abandoned(reason)
      },
    )
  }

  #refusal(outcome: Outcome, waitMs: number): RetryRefusal | undefined {
    const { attempts, kit, scope, budgets } = this.#parts
    const rule = ruleAgainst(this.#call, outcome, scope)
    if (rule !== undefined) return rule
    if (this.#retries >= attempts) return 'attempts'
    const now = kit.clock.now()
    return fits(waitMs, this.#call, now) ? budgets.claim(now) : 'deadline'
  }

  #again(before: Outcome): Promise<Outcome> {
    const { attempt, record } = this.#call
    this.#retries++
    // Hedges have numbers too: no two tries of a call share one.
    const number = attempt + this.#retries + record.hedges - this.#hedgesBefore
    const release = () => this.#parts.budgets.release()
    return this.#next(nextTry(this.#call, number))
      .finally(release)
      .then((outcome) => {
        // A limit of ours says nothing of the call, which was sent before: what stands is how that ended.
        if (outcome.kind === 'rejected') {
          noteOverruled(record, outcome)
          record.retryRefused = 'limited'
          return this.#told(before)
        }
        record.retries++
        return this.after(outcome)
      })
  }

  #told(outcome: Outcome): Outcome {
    const none = outcome.kind !== 'answered' || isFailure(outcome)
    return none && this.#wrong !== undefined ? this.#wrong : withSent(outcome, this.#sent)
  }

  /** The call was ended between two tries. */
  #abandoned(reason: unknown): Outcome {
    const error = isGatewayError(reason) ? reason : gatewayError('cancelled', 'the caller gave up')
    return { kind: 'failed', error: { ...error, sent: this.#call.record.sent } }
  }
}
