import { askedMs } from '../../mesh/asking.ts'
import type { CallRecord } from '../../mesh/call.ts'
import type { Cancel, Clock, Millis } from '../../mesh/clock.ts'
import { formatDuration } from '../../units/duration.ts'

/** A call that tries a half-open breaker. */
export interface Probe {
  cancel: Cancel
  /** Whether it is no longer waited for. */
  over: boolean
}

export interface TrialParts {
  readonly clock: Clock
  /** How many may be under way at a time, and how many have to succeed. */
  readonly probes: number
  readonly probeTimeout: Millis
}

/** The half-open time of a breaker: as many probes as needed, and the decision that they come to. */
export class Trial {
  readonly #parts: TrialParts
  readonly #decided: (failure: string | undefined) => void
  readonly #underWay = new Set<Probe>()
  #free: number
  #needed: number

  /** `decided`: called at most once; undefined when the trial has passed, else why not. */
  constructor(parts: TrialParts, decided: (failure: string | undefined) => void) {
    this.#parts = parts
    this.#decided = decided
    this.#free = parts.probes
    this.#needed = parts.probes
  }

  /** Takes a slot for a call; undefined when there is none. */
  begin(record: CallRecord): Probe | undefined {
    if (this.#free === 0) return undefined
    this.#free--
    const { clock, probeTimeout } = this.#parts
    const askedBefore = askedMs(record, clock.now())
    let granted = 0
    const expire = () => {
      const grace = askedMs(record, clock.now()) - askedBefore - granted
      granted += grace
      if (grace > 0) probe.cancel = clock.after(grace, expire)
      else this.failed(probe, `a probe has not come back within ${formatDuration(probeTimeout)}`)
    }
    const probe: Probe = { cancel: clock.after(probeTimeout, expire), over: false }
    this.#underWay.add(probe)
    return probe
  }

  passed(probe: Probe): void {
    if (this.#ended(probe) && --this.#needed === 0) this.#decide(undefined)
  }

  failed(probe: Probe, why: string): void {
    if (this.#ended(probe)) this.#decide(why)
  }

  /** Gives back the slot of a probe that has shown nothing. */
  neutral(probe: Probe): void {
    if (this.#ended(probe)) this.#free++
  }

  /** Ends it without a decision. Probes that are under way do not count any more. */
  abandon(): void {
    this.#free = 0
    for (const probe of this.#underWay) this.#ended(probe)
  }

  /** False when it was over before. */
  #ended(probe: Probe): boolean {
    if (probe.over) return false
    probe.over = true
    probe.cancel()
    this.#underWay.delete(probe)
    return true
  }

  #decide(failure: string | undefined): void {
    this.abandon()
    this.#decided(failure)
  }
}
