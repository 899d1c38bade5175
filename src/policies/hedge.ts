import { z } from 'zod'
import type { Answer, Call, Channel, Layer, Message, Outcome, Service } from '../mesh/call.ts'
import { Cancellation } from '../mesh/cancel.ts'
import { isFailure } from '../mesh/classify.ts'
import type { Cancel, Clock, Millis } from '../mesh/clock.ts'
import { gatewayError } from '../mesh/errors.ts'
import type { Policy } from '../mesh/policy.ts'
import { noteSupersededRejection } from '../mesh/record.ts'
import { duration } from '../units/duration.ts'
import {
  budgetSchema,
  dividedBudget,
  hedges,
  isInboundRetry,
  nextTry,
  retryRefused,
  RetryBudgets,
  withSent,
} from './retry/tries.ts'
import { estimateOf, type LatencyEstimate } from './state/estimate.ts'

const quantiles = { p90: 0.9, p95: 0.95, p99: 0.99 } as const

const quantileNames = ['p90', 'p95', 'p99'] as const

const schema = z
  .strictObject({
    after: z
      .union([z.enum(quantileNames), duration({ min: 1 })])
      .describe(
        'How long to wait for an answer before sending the call once more: a duration, or `p90`, `p95` or `p99` ' +
          "of the tool's recent latency. While the latency is unknown, nothing is sent twice.",
      ),
    maxHedges: z
      .int()
      .min(1)
      .max(3)
      .default(1)
      .describe('Most tries after the first, each after the same wait; 1 to 3.'),
    budget: budgetSchema,
  })
  .describe('Sends a slow, read-only call once more, and uses the answer that arrives first.')

/**
 * Hedged requests (Dean and Barroso, "The Tail at Scale", 2013). Only known read-only calls are sent twice. Each copy
 * spends from the same budgets as a retry. Only the `retry` policy fills the budgets; without `retry`, only the floor
 * remains.
 */
export const hedge: Policy<z.output<typeof schema>> & { schema: typeof schema } = {
  schema,
  use: 'Use it for read-only tools whose slowest calls are much slower than the rest, on servers with capacity to spare. Do not use it where each call costs money, or where a server is slow because it is overloaded.',
  optIn: true,
  facts: [hedges],
  divided: ({ budget, ...others }, share) => ({ ...others, budget: dividedBudget(budget, share) }),
  build({ after, maxHedges, budget }, context, scope): Layer {
    const { clock } = context
    const parts = { clock, maxHedges, budgets: new RetryBudgets(context, scope, budget) }
    const estimates: LatencyEstimate[] = []
    if (typeof after === 'string')
      for (let replica = 0; replica < scope.replicas; replica++)
        estimates.push(estimateOf(context, scope, replica))

    function delayFor(call: Call, now: Millis): Millis | undefined {
      if (typeof after === 'number') return after
      const only = call.replica ?? scope.home(call.caller)
      const considered = only === undefined ? estimates : estimates.slice(only, only + 1)
      return shortest(considered, quantiles[after], now)
    }

    return (next) => (call) => {
      if (call.signal.aborted || scope.effectOf(call) !== 'read_only') return next(call)
      const now = clock.now()
      const delayMs = delayFor(call, now)
      const isPointless = call.deadline !== undefined && call.deadline.at - now <= (delayMs ?? 0)
      if (delayMs === undefined || isPointless) return next(call)
      return Race.run(call, next, delayMs, parts)
    }
  },
}

/** Returns the fastest known replica's quantile, in whole milliseconds: hedges are for calls on a slow replica. */
function shortest(estimates: readonly LatencyEstimate[], q: number, now: Millis): Millis | undefined {
  let least: Millis | undefined
  for (const estimate of estimates) {
    const ms = estimate.quantile(q, now)
    if (ms !== undefined && (least === undefined || ms < least)) least = ms
  }
  return least === undefined ? undefined : Math.max(1, Math.ceil(least))
}

interface RaceParts {
  readonly clock: Clock
  readonly budgets: RetryBudgets
  readonly maxHedges: number
}

interface Runner {
  readonly signal: Cancellation
  outcome: Outcome | undefined
  /** Whether the try was ended because another try already sends messages to the agent. */
  muted: boolean
}

/** The tries of a call, side by side: the first useful answer counts. */
class Race {
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
    const { clock, budgets, maxHedges } = this.#parts
    // Once the agent has seen a part of a try, the call has to continue with that try.
    if (signal.aborted || record.firstByteAt !== undefined || this.#channel.taken) return
    const refused = isInboundRetry(this.#call) ? 'inbound_attempt' : budgets.claim(clock.now())
    if (refused !== undefined) return retryRefused.note(record, refused)
    hedges.add(record)
    this.#start()
    if (!this.#over && this.#runners.length <= maxHedges) this.#arm()
  }

  #start(): void {
    const signal = new Cancellation()
    const runner: Runner = { signal, outcome: undefined, muted: false }
    const channel = this.#channel.for(runner, () => {
      runner.muted = true
      signal.abort(gatewayError('cancelled', 'another try already sends messages to the agent'))
    })
    const before = this.#runners.push(runner) - 1
    const call = nextTry(this.#call, this.#call.attempt + before, { signal, channel })
    const release = () => {
      if (before > 0) this.#parts.budgets.release()
    }
    // A bug of the gateway must fail only this call: an error thrown in a timer would end the process.
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

  /**
   * Returns the outcome of the call when every try failed. The order of preference: the first sent try that another
   * try's messages did not end, a rejected try, `last`.
   */
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
      else if (outcome !== told) noteSupersededRejection(this.#call.record, outcome)
  }
}

/** The channel of a call with several tries: the agent hears only the first try that sends something. */
class SharedChannel {
  readonly #channel: Channel
  #speaker: object | undefined

  constructor(channel: Channel) {
    this.#channel = channel
  }

  /** Whether any try has sent something. */
  get taken(): boolean {
    return this.#speaker !== undefined
  }

  /** From now on, passes only messages of the try `speaker` to the agent. */
  leaveTo(speaker: object): void {
    this.#speaker = speaker
  }

  /**
   * Returns the channel of the try `speaker`. Drops its messages once another try has sent something. A dropped request
   * gets no answer, so `mute` ends the try.
   */
  for(speaker: object, mute: () => void): Channel {
    const channel = this.#channel
    return {
      // Opening a stream does not count as a message: many servers always open one.
      open: () => channel.open(),
      pause: (retryMs, askNow) => {
        if (this.#speaker === undefined || this.#speaker === speaker) channel.pause(retryMs, askNow)
      },
      send: (message: Message, answer?: Answer) => {
        this.#speaker ??= speaker
        if (this.#speaker === speaker) return channel.send(message, answer)
        if (answer !== undefined) mute()
        return undefined
      },
    }
  }
}
