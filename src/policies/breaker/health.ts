import type { Call, Outcome } from '../../mesh/call.ts'
import { attributionOf } from '../../mesh/classify.ts'
import type { Millis } from '../../mesh/clock.ts'
import { formatDuration } from '../../units/duration.ts'
import { RingWindow } from '../state/window.ts'
import type { BreakerConfig } from './schema.ts'

/** What brought a change of state about. */
export type Dimension = 'availability' | 'correctness' | 'slow' | 'consecutive' | 'manual' | 'probe'

/** Why a breaker opens. */
export interface Trip {
  readonly dimension: Dimension
  /** In words, with the numbers; holds no secret. */
  readonly why: string
}

/** What a window holds. */
export interface Counts {
  readonly good: number
  readonly bad: number
  /** Share of bad ones, in [0, 1]; 0 when there are none at all. */
  readonly ratio: number
}

/** Counts what became of calls while a breaker is closed, and says when it is too much. */
export class Tally {
  readonly #config: BreakerConfig
  readonly #availability: RingWindow
  /** Made with its first sample: most tools have no schema to be checked against. */
  #correctness: RingWindow | undefined
  readonly #slow: RingWindow | undefined
  /** Failures in a row. */
  consecutive = 0

  constructor(config: BreakerConfig) {
    this.#config = config
    this.#availability = new RingWindow(config.window)
    if (config.slow !== false) this.#slow = new RingWindow(config.window)
  }

  /** What one call shows that would count against the server; undefined when there is nothing. */
  faultOf(judgement: Judgement, ranMs: Millis): string | undefined {
    if (judgement === 'neutral') return undefined
    if (judgement === 'failed') return 'a probe failed'
    if (judgement === 'wrong' && this.#config.correctness !== false) return 'a probe got a wrong reply'
    return this.#isSlow(ranMs) ? 'a probe was slow' : undefined
  }

  /** Counts a call that is over. Returns why to open, if there is a reason. */
  add(judgement: Judgement, ranMs: Millis, now: Millis): Trip | undefined {
    if (judgement === 'neutral') return undefined
    if (judgement === 'caller_timeout') {
      // How long it would have taken is not known: it counts if it was slow by then, and for nothing else.
      if (!this.#isSlow(ranMs)) return undefined
      this.#slow?.add(true, now)
      return this.#trip(now)
    }
    const failed = judgement === 'failed'
    this.consecutive = failed ? this.consecutive + 1 : 0
    this.#availability.add(failed, now)
    this.#slow?.add(this.#isSlow(ranMs), now)
    if (judgement === 'correct' || judgement === 'wrong') this.#addChecked(judgement === 'wrong', now)
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

  /** Undefined when slow calls do not count. */
  slow(now: Millis): Counts | undefined {
    return this.#slow && countsOf(this.#slow, now)
  }

  #isSlow(ranMs: Millis): boolean {
    return this.#config.slow !== false && ranMs > this.#config.slow.over
  }

  #addChecked(wrong: boolean, now: Millis): void {
    if (this.#config.correctness === false) return
    this.#correctness ??= new RingWindow(this.#config.window)
    this.#correctness.add(wrong, now)
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
  // Without a bad sample there is nothing to work out: that is nearly every call.
  if (window === undefined || window.bad === 0) return false
  const { good, bad } = window.totals(now)
  return bad > 0 && good + bad >= minimum && bad >= ratio * (good + bad)
}

function countsOf(window: RingWindow | undefined, now: Millis): Counts {
  if (window === undefined) return { good: 0, bad: 0, ratio: 0 }
  const { good, bad } = window.totals(now)
  return { good, bad, ratio: bad === 0 ? 0 : bad / (good + bad) }
}

/**
 * What an outcome says of the server; a reply that nobody checked says nothing of how correct it is, and one that nobody
 * waited for nothing but that it was not there yet.
 */
export type Judgement = 'neutral' | 'caller_timeout' | 'failed' | 'answered' | 'correct' | 'wrong'

/** Judges the outcome of an attempt that ran for `ranMs`. */
export function judge(outcome: Outcome, call: Call, ranMs: Millis): Judgement {
  if (outcome.kind === 'rejected') return 'neutral'
  switch (attributionOf(outcome, call, ranMs)) {
    case 'good':
      return isCorrect(outcome) ? 'correct' : 'answered'
    case 'outage':
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

function isCorrect(outcome: Outcome): boolean {
  return (
    outcome.kind === 'answered' && (outcome.verdict === 'correct' || outcome.verdict === 'partial_declared')
  )
}
