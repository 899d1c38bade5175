import type { Clock, Millis } from '../../mesh/clock.ts'

/** How much may be sent again. */
export interface BudgetTerms {
  /** Share of the calls of a window that may be sent again. */
  readonly ratio: number
  /** Retries a second that are allowed however few calls there are. */
  readonly floor: number
  /** How far back calls and retries count, in milliseconds; rounded up to whole seconds. */
  readonly window: Millis
  /** Share of the calls under way that may be retries. */
  readonly concurrency: number
  /** Retries under way that are allowed however few calls there are. */
  readonly leastConcurrent: number
}

/** What the admin API shows of a budget: sums over the window of the terms that were asked for last. */
export interface BudgetSnapshot {
  /** Retries that may be sent now. */
  readonly balance: number
  readonly deposits: number
  readonly withdrawals: number
  /** Calls under way, in whatever try or wait between tries. */
  readonly active: number
  /** Of their retries and hedges, those that wait for their turn or are under way. */
  readonly retrying: number
}

/** Longest window, in milliseconds. */
export const LONGEST_WINDOW_MS = 60_000

/** A second: floors are rates per second. */
const BUCKET_MS = 1_000
const BUCKETS = LONGEST_WINDOW_MS / BUCKET_MS

/** Products such as 0.29 × 100 come out a hair too small: nobody loses a retry for that. */
const HAIR = 1e-9

/**
 * Retries earned by calls: Finagle's RetryBudget (every call deposits a share of a retry, which expires with
 * its window), in buckets of a second, and Envoy's form of it next to it (retries under way as a share of calls
 * under way). The first bounds the load in the long run; the second holds when calls become slow, and what
 * fast ones have deposited before would feed a storm.
 *
 * What Finagle adds to the share, a floor for small traffic, here counts *within* it: a window allows
 * max(floor × window, ratio × deposits). With a ratio of 0.2 and a floor of 5/s, a server that fails all calls for 30 s gets at most 1.25 × the
 * load that is offered, if that is steady and at least 25/s: there 20 % of the deposits is no less than the floor of
 * 5/s, so a window allows 2 s worth of load, perhaps all at once. Three such bursts fit into 30 s, and as windows move
 * by whole seconds half of a fourth, with the 2 retries of a call: 7 s worth of load more, 1.23 × (1.27 × with 10
 * retries and nearly no backoff, without the limit of concurrency). A sum of both would be 1.4 × at 25/s. Below 25/s
 * the floor alone counts: an agent that is alone gets its retries.
 *
 * The terms are not part of the state: tools of one server may have different ones, and share what is counted.
 */
export class RetryBudget {
  readonly #clock: Clock
  readonly #deposits = new Float64Array(BUCKETS)
  readonly #withdrawals = new Float64Array(BUCKETS)
  #terms: BudgetTerms
  /** The second that the clock showed last. */
  #second: number
  #active = 0
  #retrying = 0

  /** `terms`: those of whoever comes first, for the snapshot. */
  constructor(clock: Clock, terms: BudgetTerms) {
    this.#clock = clock
    this.#terms = terms
    this.#second = secondOf(clock.now())
  }

  /** A call begins: it deposits. */
  enter(now: Millis): void {
    const bucket = this.#bucket(now)
    this.#deposits[bucket] = (this.#deposits[bucket] as number) + 1
    this.#active++
  }

  /** A call is over, with all its tries. */
  leave(): void {
    this.#active--
  }

  /** How many retries may be sent at `now`: a whole number, at least 0. */
  balance(terms: BudgetTerms, now: Millis): number {
    this.#terms = terms
    this.#bucket(now)
    const { ratio, floor, window } = terms
    const earned = Math.max(floor * bucketsOf(window), ratio * this.#sum(this.#deposits))
    return Math.max(0, Math.floor(earned - this.#sum(this.#withdrawals) + HAIR))
  }

  /** Whether one more retry may be under way. */
  hasRoom({ concurrency, leastConcurrent }: BudgetTerms): boolean {
    return this.#retrying + 1 <= Math.max(leastConcurrent, concurrency * this.#active + HAIR)
  }

  /** A retry is decided upon; whether it may be, the caller has asked. */
  withdraw(now: Millis): void {
    const bucket = this.#bucket(now)
    this.#withdrawals[bucket] = (this.#withdrawals[bucket] as number) + 1
  }

  /** A retry is under way, or waits for no more than its own time. */
  start(): void {
    this.#retrying++
  }

  /** A retry is over, or will not be sent after all. What it took stays taken. */
  release(): void {
    this.#retrying--
  }

  snapshot(): BudgetSnapshot {
    return {
      balance: this.balance(this.#terms, this.#clock.now()),
      deposits: this.#sum(this.#deposits),
      withdrawals: this.#sum(this.#withdrawals),
      active: this.#active,
      retrying: this.#retrying,
    }
  }

  /** The bucket of this moment; those of seconds that nobody has seen are emptied. */
  #bucket(now: Millis): number {
    const second = secondOf(now)
    const from = Math.max(this.#second, second - BUCKETS)
    for (let passed = from + 1; passed <= second; passed++) {
      this.#deposits[passed % BUCKETS] = 0
      this.#withdrawals[passed % BUCKETS] = 0
    }
    if (second > this.#second) this.#second = second
    return this.#second % BUCKETS
  }

  #sum(buckets: Float64Array): number {
    let sum = 0
    for (let back = 0; back < bucketsOf(this.#terms.window); back++)
      sum += buckets[(this.#second - back + BUCKETS) % BUCKETS] as number
    return sum
  }
}

function secondOf(now: Millis): number {
  return Math.floor(now / BUCKET_MS)
}

function bucketsOf(window: Millis): number {
  return Math.ceil(window / BUCKET_MS)
}
