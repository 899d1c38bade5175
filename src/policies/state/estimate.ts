import type { Millis } from '../../mesh/clock.ts'
import type { PolicyContext, Scope } from '../../mesh/policy.ts'
import { DecayingHistogram, GAMMA } from './histogram.ts'

/** Fewer samples than this tell nothing: ten calls within a few seconds. */
const LEAST_SAMPLES = 9

/** How many of the latest calls are looked at by themselves, and for how long, in milliseconds. */
const RECENT = 8
const RECENT_MS = 10_000

/** How many calls of the latest ones what is known from earlier on is worth. */
const PRIOR = 2

/** What the admin API shows of an estimate. */
export interface EstimateSnapshot {
  /** How many calls it rests on, faded by age. */
  readonly samples: number
  readonly p50Ms: number | undefined
  readonly p95Ms: number | undefined
  readonly p99Ms: number | undefined
}

/**
 * How long calls take, from how long they took. Two views, of which the gloomier counts: a histogram that forgets
 * half of itself in 30 seconds, and the last eight calls, without which a server that turns from 90 ms to 2 s would
 * be believed to be fast for half a minute. The latter take five calls to notice, and no single outlier moves
 * them far; they are forgotten after ten seconds, so that what nobody calls any more is not written off.
 */
export class LatencyEstimate {
  readonly #all = new DecayingHistogram()
  readonly #recentMs = new Float64Array(RECENT)
  /** Negative infinity where there is none yet. */
  readonly #recentAt = new Float64Array(RECENT).fill(-Infinity)
  readonly #recentCensored = new Uint8Array(RECENT)
  #next = 0

  /** Notes a call that got its answer after `ms`. */
  record(ms: Millis, now: Millis): void {
    this.#all.add(ms, now)
    this.#note(ms, now, 0)
  }

  /** Notes a call that was given up after `ms`: it would have taken longer, nobody knows how much. */
  recordCensored(ms: Millis, now: Millis): void {
    this.#all.addCensored(ms, now)
    this.#note(ms, now, 1)
  }

  /** The probability, in [0, 1], that a call is answered within `ms`; undefined while too little is known. */
  chanceWithin(ms: Millis, now: Millis): number | undefined {
    if (this.#all.samplesAbout(ms, now) < LEAST_SAMPLES) return undefined
    const overall = this.#all.shareWithin(ms)
    let known = PRIOR
    let within = PRIOR * overall
    for (let i = 0; i < RECENT; i++) {
      if (now - (this.#recentAt[i] as number) > RECENT_MS) continue
      const recentMs = this.#recentMs[i] as number
      // Who was given up about as late as this would not have made it; who was given up earlier, perhaps.
      if (this.#recentCensored[i] === 1 && recentMs * GAMMA < ms) continue
      known++
      if (this.#recentCensored[i] === 0 && recentMs <= ms) within++
    }
    return Math.min(overall, within / known)
  }

  /**
   * The duration within which a share `q` (0 … 1) of the calls is answered, in milliseconds, at most 15 % off;
   * undefined while too little is known. A lower bound, where so many calls were given up that nobody knows.
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

/** The estimate for a tool on one replica, shared by all policies; requests other than tool calls share one. */
export function estimateOf({ state }: PolicyContext, scope: Scope, replica: number): LatencyEstimate {
  const { set, server, tool, endpoints } = scope
  const key = { kind: 'estimate', set, server, tool, endpoint: endpoints[replica], replica }
  return state.get(key, () => new LatencyEstimate())
}
