import type { Millis } from '../../mesh/clock.ts'
import type { PolicyContext, Scope } from '../../mesh/policy.ts'

/** The fewest samples for an estimate: ten calls within a few seconds. */
const LEAST_SAMPLES = 9

/** How many of the latest calls count separately, and for how long, in milliseconds. */
const RECENT = 8
const RECENT_MS = 10_000

/** The weight of the histogram's estimate, as a number of recent calls. */
const PRIOR = 2

/** An estimate as the admin API shows it. */
export interface EstimateSnapshot {
  /** The number of calls behind the estimate, faded by age. */
  readonly samples: number
  readonly p50Ms: number | undefined
  readonly p95Ms: number | undefined
  readonly p99Ms: number | undefined
}

/**
 * Estimates how long calls take, from earlier calls. The more pessimistic of two views counts: a histogram in which
 * calls lose half their weight in 30 seconds, and the last eight calls. With the histogram alone, a server going from
 * 90 ms to 2 s would seem fast for half a minute. The last calls need five calls to notice, and no single outlier moves
 * them far. The last calls are forgotten after ten seconds, so that an unused tool is not judged by them.
 */
export class LatencyEstimate {
  readonly #all = new DecayingHistogram()
  readonly #recentMs = new Float64Array(RECENT)
  /** Negative infinity for an empty place. */
  readonly #recentAt = new Float64Array(RECENT).fill(-Infinity)
  readonly #recentCensored = new Uint8Array(RECENT)
  #next = 0

  /** Notes a call answered after `ms`. */
  record(ms: Millis, now: Millis): void {
    this.#all.add(ms, now)
    this.#note(ms, now, 0)
  }

  /** Notes a call given up after `ms`: it would have taken longer, by an unknown time. */
  recordCensored(ms: Millis, now: Millis): void {
    this.#all.addCensored(ms, now)
    this.#note(ms, now, 1)
  }

  /** Returns the probability, in [0, 1], of an answer within `ms`; undefined while too little is known. */
  chanceWithin(ms: Millis, now: Millis): number | undefined {
    if (this.#all.samplesAbout(ms, now) < LEAST_SAMPLES) return undefined
    const overall = this.#all.shareWithin(ms)
    let known = PRIOR
    let within = PRIOR * overall
    for (let i = 0; i < RECENT; i++) {
      if (now - (this.#recentAt[i] as number) > RECENT_MS) continue
      const recentMs = this.#recentMs[i] as number
      // A call given up at about `ms` or later would have been late. A call given up earlier shows nothing, so it is
      // skipped.
      if (this.#recentCensored[i] === 1 && recentMs * GAMMA < ms) continue
      known++
      if (this.#recentCensored[i] === 0 && recentMs <= ms) within++
    }
    return Math.min(overall, within / known)
  }

  /**
   * Returns the duration within which a share `q` (0 … 1) of the calls is answered, in milliseconds. At most 15 % off.
   * Undefined while too little is known. A lower bound if too many calls were given up.
   */
  quantile(q: number, now: Millis): Millis | undefined {
    return this.#all.samples(now) < LEAST_SAMPLES ? undefined : this.#all.quantile(q)
  }

  snapshot(now: Millis): EstimateSnapshot {
    return {
      samples: this.#all.samples(now),
      p50Ms: this.quantile(0.5, now),
      p95Ms: this.quantile(0.95, now),
      p99Ms: this.quantile(0.99, now),
    }
  }

  #note(ms: Millis, now: Millis, censored: 0 | 1): void {
    this.#recentMs[this.#next] = ms
    this.#recentAt[this.#next] = now
    this.#recentCensored[this.#next] = censored
    this.#next = (this.#next + 1) % RECENT
  }
}

/** Returns a tool's estimate on a replica, shared by all policies; all other requests share an estimate. */
export function estimateOf({ state }: PolicyContext, scope: Scope, replica: number): LatencyEstimate {
  const { set, server, tool, endpoints } = scope
  const key = { kind: 'estimate', set, server, tool, endpoint: endpoints[replica], replica }
  return state.get(key, () => new LatencyEstimate())
}

/** Each bin is 15 % wider than the bin before: no quantile is further off. */
export const GAMMA = 1.15

/** 0.5 ms to 292 s; faster or slower calls count in the first or the last bin. */
const BINS = 96
const FIRST_MS = 0.5
const LOG_GAMMA = Math.log(GAMMA)

/** A sample counts half as much after this long, in milliseconds. */
const HALF_LIFE_MS = 30_000

/** Weights are scaled down when a new sample's weight has grown to 2^this: after 32 minutes. */
const MOST_HALVINGS = 64

/**
 * A fading logarithmic histogram of durations: samples lose half their weight every 30 seconds. Instead of making all
 * old samples lighter, the histogram makes each new sample heavier.
 *
 * A call given up has only a known minimum duration. These censored samples are handled as by Kaplan and Meier
 * (1958): each counts like the calls that took longer.
 */
export class DecayingHistogram {
  readonly #done = new Float64Array(BINS)
  readonly #censored = new Float64Array(BINS)
  #doneTotal = 0
  #censoredTotal = 0
  /** The bins between which all samples lie: most tools need few of the 96. */
  #lowest = BINS
  #highest = -1
  #epoch: Millis = 0

  add(ms: Millis, now: Millis): void {
    const weight = this.#weight(now)
    const bin = this.#reach(ms)
    this.#done[bin] = (this.#done[bin] as number) + weight
    this.#doneTotal += weight
  }

  /** Counts a call with only a known minimum duration. */
  addCensored(ms: Millis, now: Millis): void {
    const weight = this.#weight(now)
    const bin = this.#reach(ms)
    this.#censored[bin] = (this.#censored[bin] as number) + weight
    this.#censoredTotal += weight
  }

  /** Returns the number of samples, faded by age. */
  samples(now: Millis): number {
    return (this.#doneTotal + this.#censoredTotal) / this.#weight(now)
  }

  /**
   * Returns how many samples, faded by age, show whether a call ends within `ms`. Calls given up earlier do not show
   * it.
   */
  samplesAbout(ms: Millis, now: Millis): number {
    let told = this.#doneTotal + this.#censoredTotal
    if (this.#censoredTotal > 0)
      for (let bin = binOf(ms) - 1; bin >= this.#lowest; bin--) told -= this.#censored[bin] as number
    return told / this.#weight(now)
  }

  /** Returns the share of calls that end within `ms`, in [0, 1]; 0 when nothing is known. */
  shareWithin(ms: Millis): number {
    const last = binOf(ms)
    if (last > this.#highest && this.#censoredTotal === 0) return this.#doneTotal > 0 ? 1 : 0
    const part = partOf(ms, last)
    const end = Math.min(last, this.#highest)
    let atRisk = this.#doneTotal + this.#censoredTotal
    let left = 1
    for (let bin = this.#lowest; bin <= end; bin++) {
      const done = this.#done[bin] as number
      if (done > 0) left *= Math.max(0, 1 - (bin === last ? part * done : done) / atRisk)
      atRisk -= done + (this.#censored[bin] as number)
    }
    return 1 - left
  }

  /** Returns the time in which a share `q` of calls ends, in milliseconds; at most the longest known; 0 without any. */
  quantile(q: number): Millis {
    let atRisk = this.#doneTotal + this.#censoredTotal
    let left = 1
    let longest = 0
    for (let bin = this.#lowest; bin <= this.#highest; bin++) {
      const done = this.#done[bin] as number
      const censored = this.#censored[bin] as number
      const after = done > 0 ? left * Math.max(0, 1 - done / atRisk) : left
      if (done > 0 && 1 - after >= q) return FIRST_MS * GAMMA ** (bin - 1 + (left - 1 + q) / (left - after))
      if (done + censored > 0) longest = FIRST_MS * GAMMA ** bin
      left = after
      atRisk -= done + censored
    }
    return longest
  }

  #reach(ms: Millis): number {
    const bin = binOf(ms)
    if (bin < this.#lowest) this.#lowest = bin
    if (bin > this.#highest) this.#highest = bin
    return bin
  }

  #weight(now: Millis): number {
    const halvings = (now - this.#epoch) / HALF_LIFE_MS
    if (halvings <= MOST_HALVINGS) return 2 ** halvings
    const factor = 2 ** -halvings
    for (let bin = 0; bin < BINS; bin++) {
      this.#done[bin] = (this.#done[bin] as number) * factor
      this.#censored[bin] = (this.#censored[bin] as number) * factor
    }
    this.#doneTotal *= factor
    this.#censoredTotal *= factor
    this.#epoch = now
    return 1
  }
}

/** Returns the bin: bin `i` holds durations above `FIRST_MS * GAMMA ** (i - 1)`, up to `GAMMA` times as long. */
function binOf(ms: Millis): number {
  if (ms <= FIRST_MS) return 0
  return Math.min(BINS - 1, Math.ceil(Math.log(ms / FIRST_MS) / LOG_GAMMA))
}

/** Returns how far into its bin a duration lies, in [0, 1]. */
function partOf(ms: Millis, bin: number): number {
  if (bin === 0) return Math.max(0, ms / FIRST_MS)
  return Math.min(1, Math.log(ms / FIRST_MS) / LOG_GAMMA - bin + 1)
}
