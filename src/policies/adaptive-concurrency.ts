import { z } from 'zod'
import { askedMs, hold, letGo } from '../mesh/pause-deadline.ts'
import type { Call, Holding, Layer, Outcome, Service } from '../mesh/call.ts'
import { isFailure, resultOf } from '../mesh/classify.ts'
import type { Clock, Millis } from '../mesh/clock.ts'
import { gatewayError, type PolicyReason } from '../mesh/errors.ts'
import type { Policy } from '../mesh/policy.ts'
import { StatesBySettings, indivisible, partOf } from './state/states-by-settings.ts'

const concurrency = () => z.int().min(1).max(10_000)

const schema = z
  .strictObject({
    initial: concurrency().default(20).describe('The initial limit of concurrent calls.'),
    min: concurrency().default(4).describe('The limit never falls below this.'),
    max: concurrency().default(200).describe('The limit never rises above this.'),
    smoothing: z
      .number()
      .min(0.01)
      .max(1)
      .default(0.2)
      .describe('How far each call moves the limit towards the value its latency suggests; 1: all the way.'),
    tolerance: z
      .number()
      .min(1)
      .max(10)
      .default(1.5)
      .describe(
        'The limit falls when the latency of a call exceeds the long-term mean latency times this factor.',
      ),
    window: z
      .int()
      .min(10)
      .max(100_000)
      .default(600)
      .describe('About how many calls the long-term mean latency covers.'),
  })
  .superRefine(({ initial, min, max }, context) => {
    const refuse = (key: string, message: string) =>
      context.addIssue({ code: 'custom', path: [key], message })
    if (min > max) refuse('min', `min must not exceed max (${max})`)
    else if (initial < min) refuse('initial', `initial must be at least min (${min})`)
    else if (initial > max) refuse('initial', `initial must not exceed max (${max})`)
  })
  .describe(
    'Learns from latency how many concurrent calls a server can handle, and rejects calls above the limit.',
  )

const ADAPTIVE_CONCURRENCY = 'adaptive-concurrency'

export const concurrencyLimited = {
  name: 'concurrency_limited',
  code: 1503,
  retryable: true,
  about: 'The server has as many calls under way as its latency allows.',
} as const satisfies PolicyReason

/**
 * Limits the calls in flight to a server by the server's latency (Gradient2 of Netflix' concurrency-limits). The
 * estimate is per server, so each tool influences the mean latency in proportion to its calls.
 */
export const adaptiveConcurrency: Policy<z.output<typeof schema>> & { schema: typeof schema } = {
  schema,
  use: 'Use it for busy servers whose capacity is unknown or changes, and whose tools take similar times. Do not use it for servers with little traffic, or where fast and slow tools share a server; a fixed `bulkhead` is better there.',
  optIn: true,
  reasons: [concurrencyLimited],
  states: [{ kind: ADAPTIVE_CONCURRENCY, isBudget: true }],
  // Only `initial` is checked: at the lowest limit, every arm still gets one call.
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

/** Bounds of the wait proposed to a rejected call, in milliseconds. */
const LEAST_RETRY_MS = 50
const MOST_RETRY_MS = 5_000

/** Counts the calls in flight to a server, and rejects calls above the limit learned from the server's latency. */
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
        // Excludes the time a person needs for a server's question: that time says nothing about the server.
        const tookMs = now - startedAt - (askedMs(call.record, now) - askedBefore)
        this.#learn(outcome, startedAt, now, tookMs, inFlight)
        return outcome
      }, broke)
    } catch (cause) {
      return broke(cause)
    }
  }

  /**
   * Adds a call to the calls in flight, or removes it. A call whose agent is being asked puts no load on the server.
   */
  count(more: 1 | -1): void {
    this.#inFlight += more
  }

  snapshot() {
    const { limit, latencyMs } = this.#gradient
    return { limit, inFlight: this.#inFlight, latencyMs: Math.round(latencyMs) }
  }

  #learn(outcome: Outcome, startedAt: Millis, now: Millis, tookMs: Millis, inFlight: number): void {
    // A failing server fails fast: only real answers show how long its work takes.
    if (outcome.kind === 'answered') {
      if (!isFailure(outcome)) this.#gradient.sample(tookMs, inFlight)
    } else if (outcome.kind === 'failed' && this.#isDrop(outcome, tookMs)) this.#gradient.drop(startedAt, now)
  }

  /**
   * Returns whether a failure shows overload. A timeout counts only after the usual latency, because the agent may be
   * impatient.
   */
  #isDrop(outcome: Outcome & { kind: 'failed' }, tookMs: Millis): boolean {
    if (resultOf(outcome) === 'timeout') return tookMs >= this.#gradient.latencyMs
    const { reason } = outcome.error
    return reason === 'upstream_rate_limited' || reason === 'overloaded'
  }

  #over(): Outcome {
    const { limit, latencyMs } = this.#gradient
    const message = `concurrency limit for ${this.#server} reached (${this.#inFlight} of ${limit} in flight)`
    // With `limit` calls in flight, a call ends on average every `latencyMs / limit`.
    const retryAfterMs = Math.round(Math.min(MOST_RETRY_MS, Math.max(LEAST_RETRY_MS, latencyMs / limit)))
    const error = gatewayError(concurrencyLimited, message, { retryAfterMs })
    return { kind: 'rejected', error, by: 'adaptiveConcurrency' }
  }
}

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

  /** Counts the call again, even above the limit: the limit is only an estimate, so a few extra calls do no harm. */
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
 * Learns from latency how many concurrent calls a server can handle: Gradient2 of Netflix' concurrency-limits
 * (github.com/Netflix/concurrency-limits, `Gradient2Limit`). Latency above the long-term mean, times a tolerance, shows
 * that calls queue inside the server: the limit shrinks by that ratio. The limit also grows by its square root, which
 * allows a short queue. Drops shrink the limit as in the same library's `AIMDLimit`.
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

  /** The limit of concurrent calls, a whole number within `min` … `max`. */
  get limit(): number {
    return Math.floor(this.#limit)
  }

  /** The long-term mean of the latency, in milliseconds; 0 before the first sample. */
  get latencyMs(): Millis {
    return this.#long.value
  }

  /** Learns from a call that took `latencyMs`; `inFlight`: calls in flight at its start, itself included. */
  sample(latencyMs: Millis, inFlight: number): void {
    const { smoothing, tolerance } = this.#settings
    // A latency of 0 would make the ratio meaningless, so the clock's resolution is the minimum.
    const shortMs = Math.max(latencyMs, 0.001)
    const longMs = this.#long.add(shortMs)
    // After a long slow period the mean would fall too slowly, and the limit would stay too high.
    if (longMs / shortMs > 2) this.#long.scale(0.95)
    // With at most half of the limit in use, latency does not show whether the limit is right.
    if (inFlight <= this.#limit / 2) return
    const gradient = Math.max(0.5, Math.min(1, (tolerance * longMs) / shortMs))
    const wanted = this.#limit * gradient + Math.sqrt(this.#limit)
    this.#set(this.#limit * (1 - smoothing) + wanted * smoothing)
  }

  /** Learns from a dropped call that started at `startedAt`. Drops of concurrent calls count as one drop. */
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

/** Number of first samples that have equal weight, so that the very first sample does not dominate. */
const WARM_UP = 10

/** An exponential mean over about `window` samples (`ExpAvgMeasurement` of Netflix' concurrency-limits). */
class LongMean {
  readonly #weight: number
  #samples = 0
  #value = 0

  constructor(window: number) {
    this.#weight = 2 / (window + 1)
  }

  /** The mean; 0 before the first sample. */
  get value(): number {
    return this.#value
  }

  add(sample: number): number {
    if (this.#samples < WARM_UP) this.#value += (sample - this.#value) / ++this.#samples
    else this.#value += (sample - this.#value) * this.#weight
    return this.#value
  }

  scale(factor: number): void {
    this.#value *= factor
  }
}
