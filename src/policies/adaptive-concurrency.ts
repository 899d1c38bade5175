import { z } from 'zod'
import { askedMs, hold, letGo } from '../mesh/pause-deadline.ts'
import type { Call, Holding, Layer, Outcome, Service } from '../mesh/call.ts'
import { isFailure, resultOf } from '../mesh/classify.ts'
import type { Clock, Millis } from '../mesh/clock.ts'
import { gatewayError, type PolicyReason } from '../mesh/errors.ts'
import type { Policy } from '../mesh/policy.ts'
import { StatesBySettings, indivisible, partOf } from './state/states-by-settings.ts'

/** A number of calls at once. */
const concurrency = () => z.int().min(1).max(10_000)

const schema = z
  .strictObject({
    initial: concurrency().default(20).describe('How many calls at once are let through at first.'),
    min: concurrency().default(4).describe('The limit never falls below this.'),
    max: concurrency().default(200).describe('The limit never rises above this.'),
    smoothing: z
      .number()
      .min(0.01)
      .max(1)
      .default(0.2)
      .describe('How far one call moves the limit towards what its latency suggests; 1: all the way.'),
    tolerance: z
      .number()
      .min(1)
      .max(10)
      .default(1.5)
      .describe('How many times the long-term mean latency may rise before the limit falls.'),
    window: z
      .int()
      .min(10)
      .max(100_000)
      .default(600)
      .describe('Over about how many calls the long-term mean latency is taken.'),
  })
  .superRefine(({ initial, min, max }, context) => {
    const refuse = (key: string, message: string) =>
      context.addIssue({ code: 'custom', path: [key], message })
    if (min > max) refuse('min', `min must not exceed max (${max})`)
    else if (initial < min) refuse('initial', `initial must be at least min (${min})`)
    else if (initial > max) refuse('initial', `initial must not exceed max (${max})`)
  })
  .describe('Learns from latency how many calls a server can take at once, and rejects those above.')

/** The kind of state of limiters. */
const ADAPTIVE_CONCURRENCY = 'adaptive-concurrency'

export const concurrencyLimited = {
  name: 'concurrency_limited',
  code: 1503,
  retryable: true,
  about: 'The server has as many calls under way as its latency allows.',
} as const satisfies PolicyReason

/**
 * Limits the calls in flight to a server by what its latency says (Gradient2 of Netflix' concurrency-limits). The
 * estimate is per server: a tool that is slow by nature weighs in the mean as often as it is called.
 */
export const adaptiveConcurrency: Policy<z.output<typeof schema>> & { schema: typeof schema } = {
  schema,
  use: 'Use it for busy servers whose capacity is unknown or changes, and whose tools take similar times. Do not use it for servers with little traffic, or where fast and slow tools share a server; a fixed `bulkhead` is better there.',
  optIn: true,
  reasons: [concurrencyLimited],
  states: [{ kind: ADAPTIVE_CONCURRENCY, isBudget: true }],
  // Where latency has brought it down to its least, everybody still gets one.
  indivisible: ({ initial }, shares) => indivisible('calls at once', initial, shares),
  divided: ({ initial, min, max, ...others }, share) => {
    const part = (count: number) => partOf(count, share)
    return { ...others, initial: part(initial), min: part(min), max: part(max) }
  },
  build(config, { clock, state }, { set, server }): Layer {
    const limiters = state.get(
      { kind: ADAPTIVE_CONCURRENCY, set, server },
      () => new StatesBySettings<Limiter>(),
    )
    const limiter = limiters.get(config, () => new Limiter(server, config, clock))
    return (next) => (call) => limiter.run(call, next)
  },
}

/** Bounds of what a rejected call is told to wait, in milliseconds. */
const LEAST_RETRY_MS = 50
const MOST_RETRY_MS = 5_000

/** Counts the calls in flight to one server, and rejects those above the limit that its latency allows. */
export class Limiter {
  readonly #server: string
  readonly #clock: Clock
  readonly #gradient: Gradient
  #inFlight = 0

  constructor(server: string, settings: GradientSettings, clock: Clock) {
    this.#server = server
    this.#clock = clock
    this.#gradient = new Gradient(settings)
  }

  run(call: Call, next: Service): Promise<Outcome> {
    if (this.#inFlight >= this.#gradient.limit) return Promise.resolve(this.#over())
    const inFlight = ++this.#inFlight
    const startedAt = this.#clock.now()
    const askedBefore = askedMs(call.record, startedAt)
    const place = new Place(this)
    hold(call.record, place)
    const left = () => {
      letGo(call.record, place)
      place.lend()
    }
    const broke = (cause: unknown): never => {
      left()
      throw cause
    }
    try {
      return next(call).then((outcome) => {
        left()
        const now = this.#clock.now()
        // The time in which a person answers a server's question says nothing about the server, and does not count.
        const tookMs = now - startedAt - (askedMs(call.record, now) - askedBefore)
        this.#learn(outcome, startedAt, now, tookMs, inFlight)
        return outcome
      }, broke)
    } catch (cause) {
      return broke(cause)
    }
  }

  /** One call more, or less: while an agent is asked, its call is no load. */
  count(more: 1 | -1): void {
    this.#inFlight += more
  }

  snapshot() {
    const { limit, latencyMs } = this.#gradient
    return { limit, inFlight: this.#inFlight, latencyMs: Math.round(latencyMs) }
  }

  #learn(outcome: Outcome, startedAt: Millis, now: Millis, tookMs: Millis, inFlight: number): void {
    // A server that fails is fast at it: only real answers say how long its work takes.
    if (outcome.kind === 'answered') {
      if (!isFailure(outcome)) this.#gradient.sample(tookMs, inFlight)
    } else if (outcome.kind === 'failed' && this.#isDrop(outcome, tookMs)) this.#gradient.drop(startedAt, now)
  }

  /** An agent in a hurry is no proof of a slow server: its timeouts count from the usual latency on. */
  #isDrop(outcome: Outcome & { kind: 'failed' }, tookMs: Millis): boolean {
    if (resultOf(outcome) === 'timeout') return tookMs >= this.#gradient.latencyMs
    const { reason } = outcome.error
    return reason === 'upstream_rate_limited' || reason === 'overloaded'
  }

  #over(): Outcome {
    const { limit, latencyMs } = this.#gradient
    const message = `concurrency limit for ${this.#server} reached (${this.#inFlight} of ${limit} in flight)`
    // At this latency, so often a call comes back.
    const retryAfterMs = Math.round(Math.min(MOST_RETRY_MS, Math.max(LEAST_RETRY_MS, latencyMs / limit)))
    const error = gatewayError(concurrencyLimited, message, { retryAfterMs })
    return { kind: 'rejected', error, by: 'adaptiveConcurrency' }
  }
}

/** One call in flight. */
class Place implements Holding {
  outer: Holding | undefined
  readonly #limiter: Limiter
  #counts = true

  constructor(limiter: Limiter) {
    this.#limiter = limiter
  }

  lend(): void {
    if (this.#counts) this.#limiter.count(-1)
    this.#counts = false
  }

  /** A few more than the limit for a moment are what a limit that is an estimate can bear. */
  takeBack(): undefined {
    if (!this.#counts) this.#limiter.count(1)
    this.#counts = true
  }
}

interface GradientSettings {
  readonly initial: number
  readonly min: number
  readonly max: number
  readonly smoothing: number
  readonly tolerance: number
  readonly window: number
}

/** The factor by which a drop shrinks the limit. */
const AFTER_DROP = 0.9

/**
 * How many calls a server can take at once, learned from its latency: Gradient2 of Netflix' concurrency-limits
 * (github.com/Netflix/concurrency-limits, `Gradient2Limit`). Latency above its long-term mean, times a tolerance,
 * means that calls queue up inside, and the limit shrinks by that ratio; otherwise it grows by its square root, the
 * queue that is allowed for. Drops shrink it as in the same library's `AIMDLimit`.
 */
export class Gradient {
  readonly #settings: GradientSettings
  readonly #long: LongMean
  #limit: number
  #droppedAt: Millis = -Infinity

  constructor(settings: GradientSettings) {
    this.#settings = settings
    this.#long = new LongMean(settings.window)
    this.#limit = settings.initial
  }

  /** Calls at once, a whole number within `min` … `max`. */
  get limit(): number {
    return Math.floor(this.#limit)
  }

  /** The long-term mean of the latency, in milliseconds; 0 before the first sample. */
  get latencyMs(): Millis {
    return this.#long.value
  }

  /** A call came back after `latencyMs`; `inFlight`: how many there were when it started, itself included. */
  sample(latencyMs: Millis, inFlight: number): void {
    const { smoothing, tolerance } = this.#settings
    // The clock's grain: a latency of 0 would make the ratio meaningless.
    const shortMs = Math.max(latencyMs, 0.001)
    const longMs = this.#long.add(shortMs)
    // After a long slow spell the mean would take long to come down, and let too much through meanwhile.
    if (longMs / shortMs > 2) this.#long.scale(0.95)
    // Calls that use half of the limit or less tell nothing about the other half.
    if (inFlight <= this.#limit / 2) return
    const gradient = Math.max(0.5, Math.min(1, (tolerance * longMs) / shortMs))
    const wanted = this.#limit * gradient + Math.sqrt(this.#limit)
    this.#set(this.#limit * (1 - smoothing) + wanted * smoothing)
  }

  /** A call that started at `startedAt` was dropped. Drops of calls that were under way together count as one drop. */
  drop(startedAt: Millis, now: Millis): void {
    if (startedAt < this.#droppedAt) return
    this.#droppedAt = now
    this.#set(this.#limit * AFTER_DROP)
  }

  #set(limit: number): void {
    const { min, max } = this.#settings
    this.#limit = Math.max(min, Math.min(max, limit))
  }
}

/** How many samples are averaged plainly, so that the first does not count for all. */
const WARM_UP = 10

/** An exponential mean over about `window` samples (`ExpAvgMeasurement` of Netflix' concurrency-limits). */
class LongMean {
  readonly #weight: number
  #samples = 0
  #value = 0

  constructor(window: number) {
    this.#weight = 2 / (window + 1)
  }

  /** 0 before the first sample. */
  get value(): number {
    return this.#value
  }

  /** Adds a sample; returns the new mean. */
  add(sample: number): number {
    if (this.#samples < WARM_UP) this.#value += (sample - this.#value) / ++this.#samples
    else this.#value += (sample - this.#value) * this.#weight
    return this.#value
  }

  scale(factor: number): void {
    this.#value *= factor
  }
}
