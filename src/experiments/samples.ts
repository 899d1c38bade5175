import type { Call, Fate, Outcome } from '../mesh/call.ts'
import { resultOfCall, wentWrong } from '../mesh/classify.ts'
import type { Millis } from '../mesh/clock.ts'

/** What is known of one unit in one arm: as a rule, of a task of an agent. */
export interface UnitSample {
  /** What was assigned as a whole. */
  readonly unit: string
  /** Its arm, without the name of the experiment. */
  readonly arm: string
  /** Tool calls that have ended. */
  calls: number
  /** Those of them that were neither given up by their agent nor wrong. */
  felt: number
  /** Those of the felt ones that were sent to a server, or could have been: the gateway did not reject them. */
  eligible: number
  /** Felt ones that went well, as their agent saw it. */
  good: number
  /** Calls that went wrong, as their agent saw it. */
  failed: number
  /** Tries at servers. */
  attempts: number
  /** How long the felt ones took, in milliseconds: all together, and each of the first 32. */
  totalMs: Millis
  readonly durations: Millis[]
  /** How it ended, as somebody reported; undefined unless somebody did. */
  outcome: 'succeeded' | 'failed' | undefined
  /** Calls that are under way. */
  underWay: number
  /** When its last call ended, on the monotonic clock. */
  lastAt: Millis
}

/** Most durations of a unit that are kept. */
const MAX_DURATIONS = 32

/** What the calls of one run of an experiment came to, by unit. */
export class Samples {
  /** By arm and unit. */
  readonly #arms = new Map<string, Map<string, UnitSample>>()
  readonly #room: { left: number }
  #count = 0
  /** What became of faults that hit calls, by arm and fate. */
  readonly fates = new Map<string, Map<Fate, number>>()
  /** Calls in arms of which something is kept. */
  assigned = 0
  /** Those of them that did not say what the experiment assigns by, and were assigned by something else. */
  fallback = 0
  /** Calls in arms of which nothing is kept, because there were too many units. */
  dropped = 0
  /** Calls that matched and took no part: they were not drawn, or said nothing to assign them by. */
  readonly out = { not_drawn: 0, excluded: 0 }

  /** `room`: how many units may be added, here and wherever else it is known. */
  constructor(room: { left: number }) {
    this.#room = room
  }

  /** Forgets all units, and gives their room back. */
  clear(): void {
    this.#arms.clear()
    this.#room.left += this.#count
    this.#count = 0
  }

  /** A call of a unit begins; undefined when there is no room for its unit. `isFallback`: it did not name that unit. */
  begin(unit: string, arm: string, isFallback = false): UnitSample | undefined {
    let units = this.#arms.get(arm)
    if (units === undefined) this.#arms.set(arm, (units = new Map<string, UnitSample>()))
    let sample = units.get(unit)
    if (sample === undefined) {
      if (this.#room.left === 0) {
        this.dropped++
        return undefined
      }
      this.#count++
      this.#room.left--
      units.set(unit, (sample = newSample(unit, arm)))
    }
    this.assigned++
    if (isFallback) this.fallback++
    sample.underWay++
    return sample
  }

  /** A call of an arm has ended, and this is what became of its faults. */
  noteFates(arm: string, { record }: Call): void {
    for (const { fate, isKept } of record.fates ?? []) {
      if (isKept === true) continue
      let ofArm = this.fates.get(arm)
      if (ofArm === undefined) this.fates.set(arm, (ofArm = new Map<Fate, number>()))
      ofArm.set(fate, (ofArm.get(fate) ?? 0) + 1)
    }
  }

  /** A call takes no part. */
  leftOut(why: 'not_drawn' | 'excluded'): void {
    this.out[why]++
  }

  /** Somebody says how a unit ended; of a unit that is in several arms, in that one. */
  report(unit: string, arm: string, outcome: 'succeeded' | 'failed'): void {
    const sample = this.#arms.get(arm)?.get(unit)
    if (sample !== undefined) sample.outcome = outcome
  }

  /** How many units an arm has, without looking at any. */
  unitsOf(arm: string): number {
    return this.#arms.get(arm)?.size ?? 0
  }

  /** Of all units. */
  all(): UnitSample[] {
    return [...this.#arms.values()].flatMap((units) => [...units.values()])
  }

  /** Of the units of which no call is under way. */
  idle(): UnitSample[] {
    return this.all().filter(({ underWay, calls }) => underWay === 0 && calls > 0)
  }

  /**
   * Of the units that are over: no call of them is under way, and somebody has reported how they ended, or none has ended
   * for `quiet` milliseconds. One that goes on after that counts with all its calls when it is over again.
   */
  complete(now: Millis, quiet: Millis): UnitSample[] {
    return this.all().filter(
      ({ underWay, calls, outcome, lastAt }) =>
        underWay === 0 && calls > 0 && (outcome !== undefined || now - lastAt >= quiet),
    )
  }
}

function newSample(unit: string, arm: string): UnitSample {
  return {
    unit,
    arm,
    calls: 0,
    felt: 0,
    eligible: 0,
    good: 0,
    failed: 0,
    attempts: 0,
    totalMs: 0,
    durations: [],
    outcome: undefined,
    underWay: 0,
    lastAt: 0,
  }
}

/** A call of a unit has ended at `now`, on the monotonic clock. */
export function endIn(sample: UnitSample, { record }: Call, outcome: Outcome, now: Millis): void {
  const result = resultOfCall(outcome, record)
  const isWrong = wentWrong(outcome, record)
  sample.underWay--
  sample.lastAt = now
  sample.calls++
  sample.attempts += record.attempts
  if (isWrong) sample.failed++
  if (result === 'cancelled' || result === 'caller_error') return
  sample.felt++
  if (!isWrong) sample.good++
  if (result !== 'rejected') sample.eligible++
  const tookMs = now - record.startedAt
  sample.totalMs += tookMs
  if (sample.durations.length < MAX_DURATIONS) sample.durations.push(tookMs)
}

/** One line for each unit and arm, with a header: what anybody needs to compute a verdict again. Durations in milliseconds. */
export function* csvOf(samples: Iterable<UnitSample>): Generator<string> {
  yield 'unit,arm,calls,felt,eligible,good,failed,attempts,total_ms,outcome,durations_ms\n'
  for (const {
    unit,
    arm,
    calls,
    felt,
    eligible,
    good,
    failed,
    attempts,
    totalMs,
    outcome,
    durations,
  } of samples) {
    const numbers = [calls, felt, eligible, good, failed, attempts, rounded(totalMs)].join(',')
    yield `${quoted(unit)},${quoted(arm)},${numbers},${outcome ?? ''},${durations.map(rounded).join(' ')}\n`
  }
}

const rounded = (ms: Millis) => Math.round(ms * 1_000) / 1_000

/** Whatever an agent called its task, it is one field on one line (RFC 4180), and to a spreadsheet it is text. */
function quoted(text: string): string {
  const line = text.replace('\n', '/').replace(/\p{Cc}/gu, ' ')
  const harmless = /^[=+\-@]/.test(line) ? `'${line}` : line
  return /[",]/.test(harmless) ? `"${harmless.replaceAll('"', '""')}"` : harmless
}
