import type { CallRecord, Outcome } from '../mesh/call.ts'
import type { Fate, FaultFate } from '../mesh/injected.ts'
import { type CallCounts, countCall, resultOfCall } from '../mesh/classify.ts'
import type { Millis } from '../mesh/clock.ts'
import { Slot } from '../mesh/record.ts'
import { type Cells, cellOf } from './guarded/meter.ts'

/** Notes on the unit of a call; undefined for a call that no experiment measures. */
export const measuredUnit = new Slot<object | undefined>(undefined)

/** The figures of a unit, usually an agent's task, in an arm. */
export interface UnitSample extends CallCounts {
  /** See `Unit.key`. */
  readonly unit: string
  readonly arm: string
  /** The tenant under which limits count the unit. */
  readonly tenant: string
  /** Start of the first call, on the monotonic clock. */
  readonly beganAt: Millis
  /** Failed tool calls, as seen by the agent. */
  failed: number
  /** Unfinished calls with assumed ends: their durations and attempts are unknown. */
  assumed: number
  attempts: number
  /** Durations of valid calls in milliseconds: the sum, and each of the first 32. */
  totalMs: Millis
  readonly durations: Millis[]
  outcome: 'succeeded' | 'failed' | undefined
  underWay: number
  /** End of the last call, on the monotonic clock; before the first end, the start of the first call. */
  lastAt: Millis
  isJudged: boolean
}

const MAX_DURATIONS = 32

/**
 * Maximum number of units in all runs together, ended runs included. Calls of further units are counted, but no verdict
 * includes them.
 */
const MAX_UNITS = 50_000

/** Maximum number of units of a tenant in current runs: a tenant with endless tasks must leave room for others. */
const MAX_OF_TENANT = MAX_UNITS / 2

/** How long the cohort waits for an open unit, in milliseconds. */
const LONGEST_OPEN_MS: Millis = 300_000

/** Limits the number of units in all runs together. */
export class Room {
  readonly #reclaim: () => void
  #left = MAX_UNITS
  readonly #ofTenants = new Map<string, number>()

  /** `reclaim`: called when no place is left, to free places of ended runs. */
  constructor(reclaim: () => void = () => undefined) {
    this.#reclaim = reclaim
  }

  /** Takes a place for a tenant. Returns false when no place is free. */
  take(tenant: string): boolean {
    const taken = this.#ofTenants.get(tenant) ?? 0
    if (taken >= MAX_OF_TENANT) return false
    if (this.#left === 0) this.#reclaim()
    if (this.#left === 0) return false
    this.#left--
    this.#ofTenants.set(tenant, taken + 1)
    return true
  }

  free(places: number): void {
    this.#left += places
  }

  /** Keeps the place of an ended run's unit, but stops counting the place against its tenant. */
  release(tenant: string): void {
    const taken = (this.#ofTenants.get(tenant) ?? 1) - 1
    if (taken === 0) this.#ofTenants.delete(tenant)
    else this.#ofTenants.set(tenant, taken)
  }
}

/** Most faults counted by name; further faults count only in `Samples.fates`. */
const MAX_FAULTS = 64

/** A fault that hit calls in arms, with its numbers by fate. */
export interface HitFault {
  readonly name: string
  readonly type: string
  readonly fates: Readonly<Record<Fate, number>>
}

/** Sums over all units of an arm. `cells`: durations of valid calls, as a histogram. */
export interface ArmFigures extends Readonly<Pick<UnitSample, 'calls' | 'failed' | 'attempts' | 'underWay'>> {
  readonly rejected: number
  readonly cells: Cells
}

export interface Beginning {
  /** The tenant under which limits count the unit. */
  readonly tenant: string
  /** On the monotonic clock. */
  readonly now: Millis
  /** True when the call did not name its unit. */
  readonly isFallback?: boolean
}

export class Samples {
  readonly #arms = new Map<string, Map<string, UnitSample>>()
  readonly #room: Room
  #hasEnded = false
  /** Numbers of faults, by arm and fate. */
  readonly fates = new Map<string, Map<Fate, number>>()
  readonly #faults = new Map<string, { name: string; type: string; fates: Record<Fate, number> }>()
  /** Durations of valid calls by arm, as counts by cell. */
  readonly #cells = new Map<string, Map<number, number>>()
  /** Recorded calls in arms. */
  assigned = 0
  /** Calls of `assigned` without the experiment's unit, assigned by the fallback. */
  fallback = 0
  /** Unrecorded calls in arms, because of too many units. */
  dropped = 0
  /** Matching calls outside the experiment: not drawn, or without a unit. */
  readonly out = { not_drawn: 0, excluded: 0 }

  constructor(room: Room) {
    this.#room = room
  }

  /** Ends the run. The units of the run no longer count against their tenants. */
  end(): void {
    if (this.#hasEnded) return
    this.#hasEnded = true
    for (const { tenant } of this.all()) this.#room.release(tenant)
  }

  /** Deletes all units and frees their places. */
  clear(): void {
    this.end()
    this.#room.free(this.all().length)
    this.#arms.clear()
  }

  /** Counts the begin of a call, and returns the sample of its unit; undefined without room for the unit. */
  begin(unit: string, arm: string, { tenant, now, isFallback = false }: Beginning): UnitSample | undefined {
    let units = this.#arms.get(arm)
    if (units === undefined) this.#arms.set(arm, (units = new Map<string, UnitSample>()))
    let sample = units.get(unit)
    if (sample === undefined) {
      if (!this.#room.take(tenant)) {
        this.dropped++
        return undefined
      }
      units.set(unit, (sample = newSample(unit, arm, tenant, now)))
    }
    this.assigned++
    if (isFallback) this.fallback++
    sample.underWay++
    return sample
  }

  has(sample: UnitSample): boolean {
    return this.#arms.get(sample.arm)?.get(sample.unit) === sample
  }

  noteFates(arm: string, fates: readonly FaultFate[]): void {
    for (const { fault, fate, isKept } of fates) {
      if (isKept === true) continue
      this.#noteFault(fault, fate)
      let ofArm = this.fates.get(arm)
      if (ofArm === undefined) this.fates.set(arm, (ofArm = new Map<Fate, number>()))
      ofArm.set(fate, (ofArm.get(fate) ?? 0) + 1)
    }
  }

  #noteFault({ name, type }: FaultFate['fault'], fate: Fate): void {
    let known = this.#faults.get(name)
    if (known === undefined) {
      if (this.#faults.size >= MAX_FAULTS) return
      known = { name, type, fates: { masked: 0, delayed: 0, surfaced: 0, escaped: 0, not_reached: 0 } }
      this.#faults.set(name, known)
    }
    known.fates[fate]++
  }

  /** Notes the duration of a valid call in an arm, in milliseconds. */
  noteDuration(arm: string, ms: Millis): void {
    let cells = this.#cells.get(arm)
    if (cells === undefined) this.#cells.set(arm, (cells = new Map<number, number>()))
    const cell = cellOf(ms)
    cells.set(cell, (cells.get(cell) ?? 0) + 1)
  }

  /** The faults that hit calls in any arm. */
  get faults(): readonly HitFault[] {
    return [...this.#faults.values()]
  }

  figuresOf(arm: string): ArmFigures {
    const sums = { calls: 0, failed: 0, attempts: 0, underWay: 0, rejected: 0 }
    for (const unit of this.#arms.get(arm)?.values() ?? []) {
      sums.calls += unit.calls
      sums.failed += unit.failed
      sums.attempts += unit.attempts
      sums.underWay += unit.underWay
      sums.rejected += unit.valid - unit.eligible
    }
    return { ...sums, cells: [...(this.#cells.get(arm) ?? [])].sort(([a], [b]) => a - b) }
  }

  leftOut(why: 'not_drawn' | 'excluded'): void {
    this.out[why]++
  }

  report(unit: string, arm: string, outcome: 'succeeded' | 'failed'): void {
    const sample = this.#arms.get(arm)?.get(unit)
    if (sample !== undefined) sample.outcome = outcome
  }

  /** Returns the number of units in an arm, in constant time. */
  unitsOf(arm: string): number {
    return this.#arms.get(arm)?.size ?? 0
  }

  all(): UnitSample[] {
    return [...this.#arms.values()].flatMap((units) => [...units.values()])
  }

  /** Returns the units with at least one ended call. */
  known(): UnitSample[] {
    return this.all().filter(({ calls }) => calls > 0)
  }

  /**
   * Returns the units begun before the oldest open unit younger than five minutes. Counting only finished units would
   * count quick units before slow units: an arm with late failures would look better than an arm with quick failures.
   *
   * A unit is open while a call is under way. Afterwards it stays open until its outcome is reported or, unless
   * `needsOutcome`, until no call has ended for `quiet` milliseconds. After five minutes an open unit counts as is, and
   * its calls under way count as failed.
   */
  cohort(now: Millis, { quiet, needsOutcome }: Waiting): UnitSample[] {
    const all = this.all()
    let before = Infinity
    for (const sample of all)
      if (now - sample.beganAt < LONGEST_OPEN_MS && isOpen(sample, now, { quiet, needsOutcome }))
        before = Math.min(before, sample.beganAt)
    return all.filter(({ beganAt, calls, underWay }) => beganAt < before && (calls > 0 || underWay > 0))
  }

  /** Returns all open units, whatever their age. `cohort` leaves out units that opened within the last five minutes. */
  open(now: Millis, waiting: Waiting): UnitSample[] {
    return this.all().filter((sample) => isOpen(sample, now, waiting))
  }

  /** Marks exactly these units as part of the latest verdict. */
  mark(judged: readonly UnitSample[]): void {
    for (const sample of this.all()) sample.isJudged = false
    for (const sample of judged) sample.isJudged = true
  }
}

export interface Waiting {
  /**
   * Time without an ended call after which a unit is over, in milliseconds. 0: only calls under way keep a unit open.
   */
  readonly quiet: Millis
  /** True when a unit stays open until its outcome is reported. */
  readonly needsOutcome: boolean
}

function isOpen(
  { underWay, outcome, lastAt }: UnitSample,
  now: Millis,
  { quiet, needsOutcome }: Waiting,
): boolean {
  return underWay > 0 || (outcome === undefined && (needsOutcome || now - lastAt < quiet))
}

/** Returns a unit as if its open part had failed. */
export const failing = (sample: UnitSample): UnitSample => ({
  ...sample,
  assumed: sample.assumed + 1,
  calls: sample.calls + 1,
  failed: sample.failed + 1,
  valid: sample.valid + 1,
  eligible: sample.eligible + 1,
  outcome: 'failed',
})

/** Returns a unit as if its open part had succeeded; earlier failures stay. */
export const succeeding = (sample: UnitSample): UnitSample => ({
  ...sample,
  assumed: sample.assumed + 1,
  calls: sample.calls + 1,
  valid: sample.valid + 1,
  eligible: sample.eligible + 1,
  returned: sample.returned + 1,
  good: sample.good + 1,
  outcome: 'succeeded',
})

function newSample(unit: string, arm: string, tenant: string, beganAt: Millis): UnitSample {
  return {
    unit,
    arm,
    tenant,
    beganAt,
    calls: 0,
    failed: 0,
    valid: 0,
    eligible: 0,
    returned: 0,
    good: 0,
    unchecked: 0,
    assumed: 0,
    attempts: 0,
    totalMs: 0,
    durations: [],
    outcome: undefined,
    underWay: 0,
    lastAt: beganAt,
    isJudged: false,
  }
}

/**
 * Records the end of a unit's call at `now`, on the monotonic clock. Returns the duration of a valid call; undefined
 * for other calls.
 */
export function endIn(
  sample: UnitSample,
  record: CallRecord,
  outcome: Outcome,
  now: Millis,
): Millis | undefined {
  const result = resultOfCall(outcome, record)
  sample.underWay--
  sample.lastAt = now
  sample.attempts += record.attempts
  if (countCall(sample, outcome, record)) sample.failed++
  if (result === 'cancelled' || result === 'caller_error') return undefined
  const tookMs = now - record.startedAt
  sample.totalMs += tookMs
  if (sample.durations.length < MAX_DURATIONS) sample.durations.push(tookMs)
  return tookMs
}

const COLUMNS =
  'unit,arm,calls,failed,valid,eligible,returned,good,unchecked,attempts,under_way,total_ms,outcome,judged,durations_ms'

/** Yields CSV: a header, then a line per unit and arm, enough to recompute a verdict. Durations in milliseconds. */
export function* csvOf(samples: Iterable<UnitSample>): Generator<string> {
  yield `${COLUMNS}\n`
  for (const sample of samples) {
    const {
      unit,
      arm,
      calls,
      failed,
      valid,
      eligible,
      returned,
      good,
      unchecked,
      attempts,
      underWay,
      totalMs,
      outcome,
      durations,
    } = sample
    const judged = sample.isJudged ? 'yes' : 'no'
    const counts = [calls, failed, valid, eligible, returned, good, unchecked, attempts, underWay]
    yield `${csvField(unitInText(unit))},${arm},${counts.join(',')},${rounded(totalMs)},${outcome ?? ''},${judged},${durations.map(rounded).join(' ')}\n`
  }
}

const rounded = (ms: Millis) => Math.round(ms * 1_000) / 1_000

/** Returns a task's key as a unit: unique, although agents choose task names and often their tenant's name. */
export const taskUnit = (source: string, tenant: string, id: string): string =>
  `${source} ${tenantInKey(tenant)}\n${id}`

export const tenantUnit = (tenant: string): string => `tenant ${tenantInKey(tenant)}`

/** Escapes line breaks and `/`, because they end the tenant in a key. */
const tenantInKey = (tenant: string) => escaped(tenant).replaceAll('/', '\\u002f')

/**
 * Returns a unit's key as a unique line. Tasks: source, tenant, `/`, task name. Control characters and backslashes are
 * escaped as in JSON, and so is `/` in a tenant's name.
 */
function unitInText(key: string): string {
  const at = key.indexOf('\n')
  return at === -1 ? key : `${key.slice(0, at)}/${escaped(key.slice(at + 1))}`
}

const escaped = (text: string) =>
  text.replace(/[\\\p{Cc}]/gu, (found) =>
    found === '\\' ? '\\\\' : `\\u${found.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )

/** Returns a field of a CSV line, quoted as in RFC 4180. */
const csvField = (line: string) => (/[",]/.test(line) ? `"${line.replaceAll('"', '""')}"` : line)
