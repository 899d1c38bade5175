import { z } from 'zod'
import type { Call, Outcome } from '../../mesh/call.ts'
import { attributionOf } from '../../mesh/classify.ts'
import type { Millis } from '../../mesh/clock.ts'
import { duration, formatDuration } from '../../units/duration.ts'

const ratio = (what: string) => z.number().gt(0).max(1).default(0.5).describe(what)

const minimum = (what: string) => z.number().int().min(1).max(1_000_000).default(10).describe(what)

const slow = z
  .strictObject({
    over: duration({ min: 1 }).describe(
      'Calls longer than this are slow; a call its caller gave up after this time is slow too.',
    ),
    ratio: ratio('Share of slow calls in the window, above 0 and at most 1, at which the breaker opens.'),
  })
  .describe('The breaker also opens on slow calls.')

const correctness = z
  .strictObject({
    ratio: ratio('Share of wrong replies, above 0 and at most 1, at which the breaker opens.'),
    minimum: minimum('Fewest replies in the window before their ratio counts.'),
  })
  .describe('The breaker opens on wrong replies, as found by `verdict`.')

/** Settings of the breaker; `{}` is all defaults. */
export const breakerSchema = z
  .strictObject({
    window: duration({ min: 100 }).default(30_000).describe('The length of the window for counting calls.'),
    ratio: ratio('Share of failed calls in the window, above 0 and at most 1, at which the breaker opens.'),
    minimum: minimum('Fewest completed calls in the window before a ratio counts.'),
    consecutive: z
      .number()
      .int()
      .min(0)
      .max(1_000_000)
      .default(5)
      .describe('Failures in a row at which the breaker opens, however few calls there were; 0: off.'),
    open: duration({ min: 1 })
      .default(5_000)
      .describe(
        'How long the breaker stays open the first time. The time doubles with each opening in a row, and starts over after the breaker has stayed closed for `window`. It ends early when an unreachable server becomes reachable again, at most 3 times before a call succeeds.',
      ),
    maxOpen: duration({ min: 1 })
      .default(60_000)
      .describe('The maximum of the doubling open time, before jitter.'),
    jitter: z
      .number()
      .min(0)
      .max(1)
      .default(0.2)
      .describe('The share by which the open time varies, up or down, from 0 to 1.'),
    probes: z
      .number()
      .int()
      .min(1)
      .max(100)
      .default(1)
      .describe('How many calls may probe at a time when half-open, and how many have to succeed.'),
    probeTimeout: duration({ min: 1 })
      .default(30_000)
      .describe(
        "How long a probe may take before it counts as failed. Choose a time longer than a good call takes. Time in which the server waits for the agent's answer to its question does not count.",
      ),
    slow: z
      .union([z.literal(false), slow])
      .default(false)
      .describe('The effect of slow calls; false: none.'),
    correctness: z
      .union([z.literal(false), correctness])
      .default({ ratio: 0.5, minimum: 10 })
      .describe('The effect of wrong replies; false: none.'),
  })
  .refine(({ open, maxOpen }) => open <= maxOpen, {
    path: ['open'],
    error: '`open` may be at most `maxOpen`',
  })
  .describe('Stops calling a tool that fails or answers wrongly, and tries it again later.')

export type BreakerConfig = z.output<typeof breakerSchema>

/** The cause of a change of state. */
export type Dimension = 'availability' | 'correctness' | 'slow' | 'consecutive' | 'manual' | 'probe'

/** The reason a breaker opens. */
export interface Trip {
  readonly dimension: Dimension
  /** The reason in words, with numbers; contains no secret. */
  readonly why: string
}

export interface Counts {
  readonly good: number
  readonly bad: number
  /** Share of bad calls, in [0, 1]; 0 without any calls. */
  readonly ratio: number
}

/** Counts the outcomes of calls while a breaker is closed, and says when failures are too many. */
export class HealthWindow {
  readonly #config: BreakerConfig
  readonly #availability: RingWindow
  readonly #correctness: RingWindow | undefined
  readonly #slow: RingWindow | undefined
  consecutive = 0

  constructor(config: BreakerConfig) {
    this.#config = config
    this.#availability = new RingWindow(config.window)
    if (config.correctness !== false) this.#correctness = new RingWindow(config.window)
    if (config.slow !== false) this.#slow = new RingWindow(config.window)
  }

  /** Returns the fault of a probe that counts against the server, in words; undefined without such a fault. */
  faultOf(judgement: HealthSample, ranMs: Millis): string | undefined {
    if (judgement === 'neutral') return undefined
    if (judgement === 'failed') return 'a probe failed'
    if (judgement === 'wrong' && this.#config.correctness !== false) return 'a probe got a wrong reply'
    return this.#isSlow(ranMs) ? 'a probe was slow' : undefined
  }

  /** Counts a finished call. Returns the reason to open, if there is one. */
  add(judgement: HealthSample, ranMs: Millis, now: Millis): Trip | undefined {
    if (judgement === 'neutral') return undefined
    if (judgement === 'caller_timeout') {
      // The call's full time is unknown, so it counts only if it was slow already.
      if (!this.#isSlow(ranMs)) return undefined
      this.#slow?.add(true, now)
      return this.#trip(now)
    }
    const failed = judgement === 'failed'
    this.consecutive = failed ? this.consecutive + 1 : 0
    this.#availability.add(failed, now)
    this.#slow?.add(this.#isSlow(ranMs), now)
    if (!failed) this.#addReply(judgement === 'wrong', now)
    return this.#trip(now)
  }

  reset(): void {
    this.consecutive = 0
    this.#availability.reset()
    this.#correctness?.reset()
    this.#slow?.reset()
  }

  availability(now: Millis): Counts {
    return countsOf(this.#availability, now)
  }

  correctness(now: Millis): Counts {
    return countsOf(this.#correctness, now)
  }

  /** Returns the counts of slow calls; undefined when slow calls do not count. */
  slow(now: Millis): Counts | undefined {
    return this.#slow && countsOf(this.#slow, now)
  }

  #isSlow(ranMs: Millis): boolean {
    return this.#config.slow !== false && ranMs > this.#config.slow.over
  }

  #addReply(wrong: boolean, now: Millis): void {
    this.#correctness?.add(wrong, now)
  }

  #trip(now: Millis): Trip | undefined {
    const { consecutive, ratio, minimum, correctness, slow, window } = this.#config
    if (consecutive > 0 && this.consecutive >= consecutive)
      return { dimension: 'consecutive', why: `${this.consecutive} failures in a row` }
    if (exceeds(this.#availability, ratio, minimum, now))
      return this.#told('availability', this.#availability, `calls failed in ${formatDuration(window)}`)
    if (correctness !== false && exceeds(this.#correctness, correctness.ratio, correctness.minimum, now))
      return this.#told('correctness', this.#correctness, `replies were wrong in ${formatDuration(window)}`)
    if (slow !== false && exceeds(this.#slow, slow.ratio, minimum, now))
      return this.#told('slow', this.#slow, `calls took longer than ${formatDuration(slow.over)}`)
    return undefined
  }

  #told(dimension: Dimension, window: RingWindow | undefined, what: string): Trip {
    const { good, bad } = window ?? { good: 0, bad: 0 }
    return { dimension, why: `${dimension}: ${bad} of ${good + bad} ${what}` }
  }
}

function exceeds(window: RingWindow | undefined, ratio: number, minimum: number, now: Millis): boolean {
  // Most windows have no bad sample: the quick answer for nearly every call.
  if (window === undefined || window.bad === 0) return false
  const { good, bad } = window.totals(now)
  return bad > 0 && good + bad >= minimum && bad >= ratio * (good + bad)
}

function countsOf(window: RingWindow | undefined, now: Millis): Counts {
  if (window === undefined) return { good: 0, bad: 0, ratio: 0 }
  const { good, bad } = window.totals(now)
  return { good, bad, ratio: bad === 0 ? 0 : bad / (good + bad) }
}

/** The judgement of one outcome. `caller_timeout` only says that the caller stopped waiting before the reply. */
export type HealthSample = 'neutral' | 'caller_timeout' | 'failed' | 'good' | 'wrong'

export function judge(outcome: Outcome, call: Call, ranMs: Millis): HealthSample {
  if (outcome.kind === 'rejected') return 'neutral'
  switch (attributionOf(outcome, call, ranMs)) {
    case 'good':
      return 'good'
    case 'failure':
      return 'failed'
    case 'wrong':
      return 'wrong'
    case 'caller_timeout':
      return 'caller_timeout'
    case 'refused':
    case 'caller_error':
    case 'nothing':
      return 'neutral'
  }
}

/** The counts of a window; the same object while the window lives. */
export interface Totals {
  readonly good: number
  readonly bad: number
}

const BUCKETS = 10

/**
 * Counts good and bad samples of the last `windowMs` in a ring of ten buckets. The oldest bucket is emptied as time
 * moves on, so a window covers 90 to 100 % of its length. In a decaying average, a tight burst of successes could hide
 * an outage. Takes 0.3 KB, and about 20 ns a sample.
 */
export class RingWindow implements Totals {
  readonly #bucketMs: Millis
  /** Good samples at even indexes, bad at odd. A typed array of this size lies off the heap, and needs more memory. */
  readonly #counts = new Array<number>(2 * BUCKETS).fill(0)
  /** Number of the newest bucket since the clock began. */
  #newest = 0
  good = 0
  bad = 0

  /** `windowMs`: length of the window, in milliseconds, more than 0. */
  constructor(windowMs: Millis) {
    this.#bucketMs = windowMs / BUCKETS
  }

  add(isBad: boolean, now: Millis): void {
    this.#advance(now)
    const at = 2 * (this.#newest % BUCKETS)
    if (isBad) {
      this.#counts[at + 1]!++
      this.bad++
    } else {
      this.#counts[at]!++
      this.good++
    }
  }

  totals(now: Millis): Totals {
    this.#advance(now)
    return this
  }

  reset(): void {
    this.#counts.fill(0)
    this.good = 0
    this.bad = 0
  }

  #advance(now: Millis): void {
    const newest = Math.floor(now / this.#bucketMs)
    if (newest - this.#newest >= BUCKETS) this.reset()
    else for (let number = this.#newest + 1; number <= newest; number++) this.#empty(number % BUCKETS)
    this.#newest = newest
  }

  #empty(bucket: number): void {
    const at = 2 * bucket
    this.good -= this.#counts[at]!
    this.bad -= this.#counts[at + 1]!
    this.#counts[at] = 0
    this.#counts[at + 1] = 0
  }
}
