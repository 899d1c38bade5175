import type { Clock, Millis } from '../../mesh/clock.ts'

/** Call results in a span of time. Latencies in milliseconds; undefined without calls. */
export interface Figures {
  readonly calls: number
  readonly failed: number
  /** Calls still under way after a long time. These calls count only in durations. */
  readonly waiting: number
  /** Calls that the gateway rejected and never sent. */
  readonly rejected: number
  readonly attempts: number
  /** Attempts that the gateway rejected, by reason, such as `rate_limited`. */
  readonly rejections: Readonly<Record<string, number>>
  readonly mean: number | undefined
  readonly p50: number | undefined
  readonly p90: number | undefined
  readonly p95: number | undefined
  readonly p99: number | undefined
}

export interface Ended {
  readonly isWrong: boolean
  readonly isRejected: boolean
  readonly attempts: number
  /** The reason of each attempt that the gateway rejected, even if a later attempt gave the call another outcome. */
  readonly rejections: readonly string[]
  readonly tookMs: Millis
}

/** A histogram of durations, without empty cells. A cell is a histogram bucket. The counts of two histograms add up. */
export type Cells = readonly (readonly [cell: number, count: number])[]

/** Length of a slice of the sliding window, in milliseconds. */
const SLICE_MS: Millis = 250

/** Ratio of the upper limits of neighbouring cells. Quantiles are within 1 % of the true value. */
export const GROWTH = 1.02

/** Upper limit of cell 0, in milliseconds. */
export const LEAST_MS: Millis = 0.1

/** Number of the last cell. */
const CELLS = 1_200

/** Returns the cell of a duration in a histogram. */
export const cellOf = (ms: Millis): number =>
  ms <= LEAST_MS ? 0 : Math.min(CELLS, Math.ceil(Math.log(ms / LEAST_MS) / Math.log(GROWTH)))

const middleOf = (cell: number): Millis => LEAST_MS * GROWTH ** (cell - 0.5)

/** Sums of calls, with a histogram of their durations. The number of cells bounds the memory. */
export class Tally {
  calls = 0
  /** Calls begun since the last `take`. Always 0, unless the tally is from `Meter.take`. */
  begun = 0
  /**
   * Retries made since the last `take`, by ended calls and by calls under way. 0 unless the tally is from `Meter.take`.
   */
  retries = 0
  /** Durations so far of the calls still under way. */
  #waiting: Millis[] = []
  #failed = 0
  #rejected = 0
  #attempts = 0
  readonly #rejections = new Map<string, number>()
  #totalMs: Millis = 0
  readonly #cells = new Map<number, number>()

  add({ isWrong, isRejected, attempts, rejections, tookMs }: Ended): void {
    this.calls++
    if (isWrong) this.#failed++
    if (isRejected) this.#rejected++
    this.#attempts += attempts
    for (const reason of rejections) count(this.#rejections, reason)
    this.#totalMs += tookMs
    count(this.#cells, cellOf(tookMs))
  }

  /** Adds a call still under way. The duration of the call is unknown, but at least `forMs`. */
  addWaiting(forMs: Millis): void {
    this.#waiting.push(forMs)
  }

  /** Adds the ended calls of an earlier tally. This tally already counts the calls under way in the earlier tally. */
  merge(other: Tally): void {
    this.calls += other.calls
    this.begun += other.begun
    this.retries += other.retries
    this.#failed += other.#failed
    this.#rejected += other.#rejected
    this.#attempts += other.#attempts
    for (const [reason, times] of other.#rejections) count(this.#rejections, reason, times)
    this.#totalMs += other.#totalMs
    for (const [cell, times] of other.#cells) count(this.#cells, cell, times)
  }

  /** Durations of ended calls. Cell 0 holds up to `LEAST_MS`; cell n up to `LEAST_MS` · `GROWTH` ^ n. */
  get cells(): Cells {
    return [...this.#cells].sort(([a], [b]) => a - b)
  }

  figures(): Figures {
    const { calls } = this
    const timed = calls + this.#waiting.length
    const all = new Map(this.#cells)
    for (const ms of this.#waiting) count(all, cellOf(ms))
    const totalMs = this.#waiting.reduce((sum, ms) => sum + ms, this.#totalMs)
    const cells = [...all].sort(([a], [b]) => a - b)
    const quantile = (share: number) => {
      let left = Math.ceil(share * timed)
      const found = cells.find(([, times]) => (left -= times) <= 0)
      return found && rounded(middleOf(found[0]))
    }
    return {
      calls,
      failed: this.#failed,
      waiting: this.#waiting.length,
      rejected: this.#rejected,
      attempts: this.#attempts,
      rejections: Object.fromEntries(this.#rejections),
      mean: timed === 0 ? undefined : rounded(totalMs / timed),
      p50: quantile(0.5),
      p90: quantile(0.9),
      p95: quantile(0.95),
      p99: quantile(0.99),
    }
  }
}

function count<Key>(counts: Map<Key, number>, key: Key, times = 1): void {
  counts.set(key, (counts.get(key) ?? 0) + times)
}

const rounded = (ms: Millis) => Number(ms.toPrecision(4))

/** A call that a meter measures. */
export class Measured {
  readonly meter: Meter
  /** `control` or `treatment`; `all` without arms. */
  readonly arm: string
  /** Start of the call. */
  readonly at: Millis
  /** Returns the retries of the call until now. */
  readonly retries: () => number

  constructor(meter: Meter, arm: string, at: Millis, retries: () => number) {
    this.meter = meter
    this.arm = arm
    this.at = at
    this.retries = retries
  }
}

/** Limit for the number of kept trace ids. */
const MAX_TRACES = 10

/**
 * Call results by arm: over a sliding window in slices of 250 ms, and since the last cut. The span of the window and
 * the number of calls under way bound the memory.
 */
export class Meter {
  readonly #clock: Pick<Clock, 'now'>
  readonly #spanMs: Millis
  /** The tallies of each arm by slice number, the oldest slice first. */
  readonly #slices = new Map<string, Map<number, Tally>>()
  /** Calls under way, in order of their start. */
  readonly #underWay = new Set<Measured>()
  /** Ended calls of each arm since the last `cut`. */
  #since = new Map<string, Tally>()
  /** Ended calls of each arm since the last `take` or `cut`. */
  #taken = new Map<string, Tally>()
  /** Calls begun in each arm since the last `take`. */
  readonly #begun = new Map<string, number>()
  /** For each call under way, the number of retries counted by `take` and `cut`. */
  readonly #counted = new Map<Measured, number>()
  #lastAt: Millis
  /** Last end of a call in each arm. */
  readonly #lastOf = new Map<string, Millis>()
  #firstEffectAt: Millis | undefined
  readonly #traces: string[] = []

  /** `spanMs`: the longest window, in milliseconds. */
  constructor(clock: Pick<Clock, 'now'>, spanMs: Millis = 60_000) {
    this.#clock = clock
    this.#spanMs = spanMs
    this.#lastAt = clock.now()
  }

  /** Time of the last end of a call, of the last `cut`, or of the meter's creation. */
  get lastAt(): Millis {
    return this.#lastAt
  }

  /** Start of the earliest call affected by a fault. */
  get firstEffectAt(): Millis | undefined {
    return this.#firstEffectAt
  }

  get traces(): readonly string[] {
    return this.#traces
  }

  /** `retries` returns the retries of the call until now. */
  begin(arm: string, retries: () => number): Measured {
    const measured = new Measured(this, arm, this.#clock.now(), retries)
    count(this.#begun, arm)
    this.#underWay.add(measured)
    return measured
  }

  /** `ended`: undefined for a call that does not count, such as a caller's error. */
  end(measured: Measured, ended: Ended | undefined): void {
    const counted = this.#counted.get(measured) ?? 0
    this.#counted.delete(measured)
    if (!this.#underWay.delete(measured) || ended === undefined) return
    const now = this.#clock.now()
    this.#lastAt = now
    this.#lastOf.set(measured.arm, now)
    this.#sliceOf(measured.arm, now).add(ended)
    tallyIn(this.#since, measured.arm).add(ended)
    const taken = tallyIn(this.#taken, measured.arm)
    taken.add(ended)
    taken.retries += measured.retries() - counted
  }

  /** Records a fault's effect on a call begun at `startedAt`. */
  affected(startedAt: Millis, traceId: string | undefined): void {
    this.#firstEffectAt = Math.min(this.#firstEffectAt ?? Infinity, startedAt)
    if (traceId !== undefined && this.#traces.length < MAX_TRACES) this.#traces.push(traceId)
  }

  /** Returns true when a call of an arm has been under way for `ms`, and no call of the arm has ended meanwhile. */
  isStuck(arm: string, ms: Millis): boolean {
    const now = this.#clock.now()
    if (now - (this.#lastOf.get(arm) ?? 0) < ms) return false
    for (const { at, arm: own } of this.#underWay) {
      if (now - at < ms) return false
      if (own === arm) return true
    }
    return false
  }

  /**
   * Returns the figures of an arm's calls ended within the last `windowMs`, and of calls under way all this time. The
   * window begins with a whole slice, so the window may be longer by almost a slice.
   */
  over(arm: string, windowMs: Millis): Figures {
    const from = Math.floor((this.#clock.now() - windowMs) / SLICE_MS)
    const sum = new Tally()
    for (const [index, tally] of this.#slices.get(arm) ?? []) if (index >= from) sum.merge(tally)
    return this.#withWaiting(sum, arm, windowMs).figures()
  }

  /** Returns the figures of an arm's calls since the last cut, including calls under way for `waitingMs` or longer. */
  since(arm: string, waitingMs: Millis = Infinity): Figures {
    const sum = new Tally()
    const ended = this.#since.get(arm)
    if (ended !== undefined) sum.merge(ended)
    return this.#withWaiting(sum, arm, waitingMs).figures()
  }

  cellsSince(arm: string): Cells {
    return this.#since.get(arm)?.cells ?? []
  }

  /**
   * Returns the tally of an arm's calls ended since the last `take`, with calls under way for `waitingMs` or longer.
   * Each ended call is in one tally.
   */
  take(arm: string, waitingMs: Millis): Tally {
    const taken = tallyIn(this.#taken, arm)
    this.#taken.delete(arm)
    this.#takeBegun(taken, arm)
    return this.#withWaiting(taken, arm, waitingMs)
  }

  /**
   * Adds the begun calls and the retries of an arm, also for calls under way. A call may end seconds after the retries
   * of the call.
   */
  #takeBegun(taken: Tally, arm: string): void {
    taken.begun = this.#begun.get(arm) ?? 0
    this.#begun.delete(arm)
    for (const measured of this.#underWay) {
      if (measured.arm !== arm) continue
      const retries = measured.retries()
      taken.retries += retries - (this.#counted.get(measured) ?? 0)
      this.#counted.set(measured, retries)
    }
  }

  #withWaiting(sum: Tally, arm: string, waitingMs: Millis): Tally {
    const now = this.#clock.now()
    for (const held of this.#underWay) {
      // All later calls began later.
      if (now - held.at < waitingMs) break
      if (held.arm === arm) sum.addWaiting(now - held.at)
    }
    return sum
  }

  /** Restarts `since`, `take` and `lastAt`. */
  cut(): void {
    this.#since = new Map()
    this.#taken = new Map()
    this.#begun.clear()
    for (const measured of this.#underWay) this.#counted.set(measured, measured.retries())
    this.#lastAt = this.#clock.now()
  }

  #sliceOf(arm: string, now: Millis): Tally {
    let slices = this.#slices.get(arm)
    if (slices === undefined) this.#slices.set(arm, (slices = new Map<number, Tally>()))
    const index = Math.floor(now / SLICE_MS)
    const slice = slices.get(index)
    if (slice !== undefined) return slice
    for (const old of slices.keys()) {
      if ((index - old) * SLICE_MS <= this.#spanMs) break
      slices.delete(old)
    }
    const fresh = new Tally()
    slices.set(index, fresh)
    return fresh
  }
}

function tallyIn(tallies: Map<string, Tally>, arm: string): Tally {
  let tally = tallies.get(arm)
  if (tally === undefined) tallies.set(arm, (tally = new Tally()))
  return tally
}
