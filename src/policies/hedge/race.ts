import type { Call, Outcome, Service } from '../../mesh/call.ts'
import { Cancellation } from '../../mesh/cancel.ts'
import { isFailure } from '../../mesh/classify.ts'
import type { Cancel, Clock, Millis } from '../../mesh/clock.ts'
import { gatewayError } from '../../mesh/errors.ts'
import { noteOverruled } from '../../mesh/record.ts'
import type { RetryBudgets } from '../retry/budgets.ts'
import { isInboundRetry, nextTry, withSent } from '../retry/next-try.ts'
import { SharedChannel } from './shared-channel.ts'

export interface RaceParts {
  readonly clock: Clock
  readonly budgets: RetryBudgets
  /** Most tries after the first. */
  readonly most: number
}

/** One try of a call. */
interface Runner {
  readonly signal: Cancellation
  outcome: Outcome | undefined
  /** Whether it was ended because the agent could not hear it. */
  muted: boolean
}

/** The tries of one call, side by side: the first useful answer counts. */
export class Race {
  readonly #call: Call
  readonly #next: Service
  readonly #delayMs: Millis
  readonly #parts: RaceParts
  readonly #channel: SharedChannel
  readonly #runners: Runner[] = []
  #cancelTimer: Cancel | undefined
  #over = false
  #resolve: (outcome: Outcome) => void = () => undefined
  #reject: (cause: unknown) => void = () => undefined

  /** Sends the call, and once more when `delayMs` have passed without an outcome. */
  static run(call: Call, next: Service, delayMs: Millis, parts: RaceParts): Promise<Outcome> {
    return new Promise((resolve, reject) => {
      const race = new Race(call, next, delayMs, parts)
      race.#resolve = resolve
      race.#reject = reject
      call.signal.addEventListener('abort', race.#follow)
      race.#start()
      if (!race.#over) race.#arm()
    })
  }

  private constructor(call: Call, next: Service, delayMs: Millis, parts: RaceParts) {
    this.#call = call
    this.#next = next
    this.#delayMs = delayMs
    this.#parts = parts
    this.#channel = new SharedChannel(call.channel)
  }

  #arm(): void {
    this.#cancelTimer = this.#parts.clock.after(this.#delayMs, () => this.#hedge())
  }

  readonly #follow = (): void => {
    for (const { signal } of this.#runners) signal.abort(this.#call.signal.reason)
  }

  #hedge(): void {
    const { record, signal } = this.#call
    const { clock, budgets, most } = this.#parts
    // What the agent has seen of a try has to go on with that try.
    if (signal.aborted || record.firstByteAt !== undefined || this.#channel.taken) return
    const refused = isInboundRetry(this.#call) ? 'inbound_attempt' : budgets.claim(clock.now())
    if (refused !== undefined) return void (record.retryRefused = refused)
    record.hedges++
    this.#start()
    if (!this.#over && this.#runners.length <= most) this.#arm()
  }

  #start(): void {
    const signal = new Cancellation()
    const runner: Runner = { signal, outcome: undefined, muted: false }
    const channel = this.#channel.for(runner, () => {
      runner.muted = true
      signal.abort(gatewayError('cancelled', 'the other try has begun to speak to the agent'))
    })
    const before = this.#runners.push(runner) - 1
    const call = nextTry(this.#call, this.#call.attempt + before, { signal, channel })
    const release = () => {
      if (before > 0) this.#parts.budgets.release()
    }
    // A defect of ours that throws is the call's to tell: thrown out of a timer, it would end the process.
    try {
      this.#next(call)
        .finally(release)
        .then(
          (outcome) => this.#ended(runner, outcome),
          (cause) => this.#broke(cause),
        )
    } catch (cause) {
      release()
      this.#broke(cause)
    }
  }

  #ended(runner: Runner, outcome: Outcome): void {
    runner.outcome = outcome
    if (this.#over) return
    if (outcome.kind === 'answered' && !isFailure(outcome)) {
      this.#channel.leaveTo(runner)
      this.#finish(outcome)
      this.#resolve(outcome)
    } else if (this.#runners.every((other) => other.outcome !== undefined)) {
      const standing = this.#standing(outcome)
      this.#finish(standing)
      this.#resolve(standing)
    }
  }

  /** What is told when no try was of use: how the first ended, of those that were sent and left alone. */
  #standing(last: Outcome): Outcome {
    const told = this.#runners.filter(({ muted }) => !muted).flatMap(({ outcome }) => outcome ?? [])
    const sent = this.#runners.some(({ outcome }) => outcome?.kind === 'failed' && outcome.error.sent)
    return withSent(told.find(({ kind }) => kind !== 'rejected') ?? told[0] ?? last, sent)
  }

  #broke(cause: unknown): void {
    if (this.#over) return
    this.#finish()
    this.#reject(cause)
  }

  #finish(told?: Outcome): void {
    this.#over = true
    this.#cancelTimer?.()
    this.#call.signal.removeEventListener('abort', this.#follow)
    for (const { signal, outcome } of this.#runners)
      if (outcome === undefined) signal.abort(gatewayError('cancelled', 'the other try was faster'))
      else if (outcome !== told) noteOverruled(this.#call.record, outcome)
  }
}
