import { askedMs, hold, letGo, type Holding } from '../../mesh/asking.ts'
import type { Call, Outcome, Service } from '../../mesh/call.ts'
import { isFailure, resultOf } from '../../mesh/classify.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { gatewayError } from '../../mesh/errors.ts'
import { Gradient, type GradientSettings } from './gradient.ts'

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
        // What a person needs to answer a server's question says nothing about the server.
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
    const error = gatewayError('concurrency_limited', message, { retryAfterMs })
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
