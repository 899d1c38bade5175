import type { FaultStatus } from '../../../../chaos/control/status.ts'
import { wrongVerdicts } from '../../../../mesh/classify.ts'
import type { Verdict } from '../../../../mesh/outcome.ts'
import type { Sample } from '../../../shared/samples.ts'

/** Fates of an injection, as in the label `fate` of metrics. */
export const fates = ['masked', 'delayed', 'surfaced', 'escaped', 'not_reached'] as const

export type FateName = (typeof fates)[number]

/** Injections of a fault into agents' calls, and their fates. */
export type FaultCount = Readonly<Record<FateName | 'injected', number>>

/** Calls or tries, counted as in the recording rules of deploy/prometheus. */
interface Availability {
  /** Calls whose outcome depends on the servers: no rejected or cancelled calls, and no errors of the caller. */
  readonly eligible: number
  /**
   * Numbers of eligible calls: with a reply, with a reply not known to be wrong, and with a reply that could not be
   * checked.
   */
  readonly returned: number
  readonly good: number
  readonly unchecked: number
}

export interface Reading {
  /** Ended tool calls of agents. */
  readonly calls: number
  /** Calls without an error of the protocol or of the tool. */
  readonly answered: number
  /** Availability of all ended calls, as agents saw the calls. */
  readonly ofAgents: Availability
  /** Availability of the tries at the servers. */
  readonly ofServers: Availability
  /** Tasks, by the agents' reports. */
  readonly succeeded: number
  readonly failed: number
  readonly faults: ReadonlyMap<string, FaultCount>
  /** Injections into the gateway's own requests. */
  readonly discovery: number
}

/** Outcomes that say nothing about servers: the caller made an error or cancelled, or the gateway rejected the call. */
const ineligible = new Set(['caller_error', 'cancelled', 'rejected'])

export function readingOf(samples: readonly Sample[]): Reading {
  const sum = (metric: string, fits: (labels: Sample['labels']) => boolean = () => true) =>
    samples.reduce(
      (total, { name, labels, value }) =>
        name === `breakwater_${metric}` && fits(labels) ? total + value : total,
      0,
    )
  const availability = (metric: string): Availability => ({
    eligible: sum(metric, ({ outcome = '' }) => !ineligible.has(outcome)),
    returned: sum(metric, ({ outcome }) => outcome === 'returned'),
    good: sum(
      metric,
      ({ outcome, verdict }) => outcome === 'returned' && !wrongVerdicts.has(verdict as Verdict),
    ),
    unchecked: sum(metric, ({ outcome, verdict }) => outcome === 'returned' && verdict === 'unchecked'),
  })
  const isOver = (outcome: string) => sum('intent_outcomes_total', (labels) => labels.outcome === outcome)
  const names = new Set(
    samples.flatMap(({ name, labels: { fault } }) =>
      name === 'breakwater_faults_injected_total' && fault !== undefined ? fault : [],
    ),
  )
  const ofFault = (fault: string): FaultCount =>
    mapCount((key) =>
      key === 'injected'
        ? sum('faults_injected_total', (labels) => labels.fault === fault)
        : sum('fault_outcomes_total', (labels) => labels.fault === fault && labels.fate === key),
    )
  return {
    calls: sum('tool_calls_total'),
    answered: sum(
      'tool_call_verdicts_total',
      ({ outcome, verdict }) => outcome === 'returned' && verdict !== 'tool_error',
    ),
    ofAgents: availability('tool_call_verdicts_total'),
    ofServers: availability('upstream_attempts_total'),
    succeeded: isOver('succeeded'),
    failed: isOver('failed'),
    faults: new Map([...names].map((name) => [name, ofFault(name)])),
    discovery: sum('discovery_faults_injected_total'),
  }
}

/** The gate of each server: `closed`, `open` or `half_open`. */
export type Gates = ReadonlyMap<string, string>

export const gatesIn = (samples: readonly Sample[]): Gates =>
  new Map(
    samples.flatMap(({ name, labels: { server, state }, value }) =>
      name === 'breakwater_gate_state' && value > 0 && server !== undefined && state !== undefined
        ? [[server, state] as const]
        : [],
    ),
  )

export function less<Counts extends object>(later: Counts, earlier: Counts | undefined): Counts {
  const before = (earlier ?? {}) as Readonly<Record<string, number>>
  const counts = Object.entries(later as Readonly<Record<string, number>>)
  return Object.fromEntries(counts.map(([key, count]) => [key, count - (before[key] ?? 0)])) as Counts
}

/** Returns the changes between two readings; `after` is the later reading. */
export function between(before: Reading, after: Reading): Reading {
  const { ofAgents, ofServers, faults, ...counts } = after
  const { ofAgents: ofAgentsBefore, ofServers: ofServersBefore, faults: faultsBefore, ...earlier } = before
  return {
    ...less(counts, earlier),
    ofAgents: less(ofAgents, ofAgentsBefore),
    ofServers: less(ofServers, ofServersBefore),
    faults: new Map([...faults].map(([name, count]) => [name, less(count, faultsBefore.get(name))])),
  }
}

const mapCount = (value: (key: keyof FaultCount) => number): FaultCount =>
  Object.fromEntries((['injected', ...fates] as const).map((key) => [key, value(key)])) as FaultCount

export function totalOf({ faults }: Pick<Reading, 'faults'>): FaultCount {
  return mapCount((key) => [...faults.values()].reduce((total, count) => total + count[key], 0))
}

/** Returns the counts of the chaos engine under the names that the metrics use. */
export const countOf = (status: FaultStatus): FaultCount =>
  mapCount((key) => status[key === 'not_reached' ? 'notReached' : key])
