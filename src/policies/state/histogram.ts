import type { Millis } from '../../mesh/clock.ts'

/** Each bin is 15 % wider than the one before: no quantile is further off than that. */
export const GAMMA = 1.15

/** 0.5 ms to 292 s; what is faster or slower is counted in the first or the last bin. */
const BINS = 96
const FIRST_MS = 0.5
const LOG_GAMMA = Math.log(GAMMA)

/** A sample counts half as much after this long, in milliseconds. */
const HALF_LIFE_MS = 30_000

/** Weights are brought down again when a new sample's has grown to 2^this: after 32 minutes. */
const MOST_HALVINGS = 64

/**
 * Durations that fade: a logarithmic histogram whose samples lose half their weight every 30 seconds. Instead of
 * making all old ones lighter each time, a new sample is made heavier.
 *
 * Calls that were given up are known only to take *longer* than so long. They are censored samples, and are
 * reckoned with as Kaplan and Meier do (1958): each stands for what became of the calls that took longer than it.
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

  /** Counts a duration. */
  add(ms: Millis, now: Millis): void {
    const weight = this.#weight(now)
    const bin = this.#reach(ms)
    this.#done[bin] = (this.#done[bin] as number) + weight
    this.#doneTotal += weight
  }

  /** Counts a call of which nothing is known but that it would have taken at least so long. */
  addCensored(ms: Millis, now: Millis): void {
    const weight = this.#weight(now)
    const bin = this.#reach(ms)
    this.#censored[bin] = (this.#censored[bin] as number) + weight
    this.#censoredTotal += weight
  }

  /** How many samples are left of all that were counted. */
  samples(now: Millis): number {
    return (this.#doneTotal + this.#censoredTotal) / this.#weight(now)
  }

  /** How many samples are left that tell whether a call ends within `ms`: not those given up before. */
  samplesAbout(ms: Millis, now: Millis): number {
    let told = this.#doneTotal + this.#censoredTotal
    if (this.#censoredTotal > 0)
      for (let bin = binOf(ms) - 1; bin >= this.#lowest; bin--) told -= this.#censored[bin] as number
    return told / this.#weight(now)
  }

  /** The share of calls that end within `ms`, in [0, 1]; 0 when nothing is known. */
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

  /**
   * The duration within which a share `q` of calls ends, in milliseconds. Where so many were given up that nobody
   * knows, it is the longest duration that is known of; 0 when there is none.
   */
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

  /** What a sample of this moment counts. */
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

/** The bin `i` holds what is longer than `FIRST_MS * GAMMA ** (i - 1)` and at most `GAMMA` times that. */
function binOf(ms: Millis): number {
  if (ms <= FIRST_MS) return 0
  return Math.min(BINS - 1, Math.ceil(Math.log(ms / FIRST_MS) / LOG_GAMMA))
}

/** How far into its bin a duration lies, in [0, 1]. */
function partOf(ms: Millis, bin: number): number {
  if (bin === 0) return Math.max(0, ms / FIRST_MS)
  return Math.min(1, Math.log(ms / FIRST_MS) / LOG_GAMMA - bin + 1)
}
