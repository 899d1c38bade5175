import type { FaultStatus } from '../../../../chaos/control/status.ts'
import { wrongVerdicts } from '../../../../mesh/classify.ts'
import type { Verdict } from '../../../../mesh/outcome.ts'

/** Ways in which an injection ends, as the label `fate` of metrics has them. */
export const fates = ['masked', 'delayed', 'surfaced', 'escaped', 'not_reached'] as const

export type FateName = (typeof fates)[number]

/** How often a fault was injected into calls of agents, and what became of it. */
export type FaultCount = Readonly<Record<FateName | 'injected', number>>

/** Calls, or tries of them, as the recording rules of deploy/prometheus count them. */
interface Availability {
  /** All that say something of servers, and were not rejected. */
  readonly eligible: number
  /** Eligible calls with a reply; with a reply not known to be wrong; with a reply that nobody could check. */
  readonly returned: number
  readonly good: number
  readonly unchecked: number
}

/** The metrics of a gateway at one moment. */
export interface Reading {
  /** Tool calls of agents that are over. */
  readonly calls: number
  /** Calls without an error of the protocol or of the tool. */
  readonly answered: number
  /** Availability of all ended calls, as agents saw the calls. */
  readonly ofAgents: Availability
  /** Their tries at the servers. */
  readonly ofServers: Availability
  /** Tasks, as agents reported their ends. */
  readonly succeeded: number
  readonly failed: number
  readonly faults: ReadonlyMap<string, FaultCount>
  /** Injections into what the gateway asked by itself. */
  readonly discovery: number
}

/** One line of metrics. */
export interface Sample {
  readonly name: string
  readonly labels: Readonly<Record<string, string>>
  readonly value: number
}

/** Reads the text format of Prometheus, as far as counters and gauges need it. */
export function samplesIn(text: string): readonly Sample[] {
  return text.split('\n').flatMap((line) => {
    const [, name, labels = '', value] = /^([a-z]\w*)(?:\{(.*)\})? (\S+)$/.exec(line) ?? []
    if (name === undefined) return []
    const pairs = [...labels.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, key, held]) => [key, held])
    return { name, labels: Object.fromEntries(pairs) as Record<string, string>, value: Number(value) }
  })
}

/** Nothing that they say is about servers: who called was wrong, or has left, or the gateway rejected the call. */
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
  const ofFault = (fault: string): FaultCount => {
    const ended = (fate: FateName) =>
      sum('fault_outcomes_total', (labels) => labels.fault === fault && labels.fate === fate)
    return {
      injected: sum('faults_injected_total', (labels) => labels.fault === fault),
      masked: ended('masked'),
      delayed: ended('delayed'),
      surfaced: ended('surfaced'),
      escaped: ended('escaped'),
      not_reached: ended('not_reached'),
    }
  }
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

/** The state of the gate of each server: `closed`, `open` or `half_open`. */
export type Gates = ReadonlyMap<string, string>

export const gatesIn = (samples: readonly Sample[]): Gates =>
  new Map(
    samples.flatMap(({ name, labels: { server, state }, value }) =>
      name === 'breakwater_gate_state' && value > 0 && server !== undefined && state !== undefined
        ? [[server, state] as const]
        : [],
    ),
  )

/** Returns the changes between two readings; `after` is the later reading. */
export function between(before: Reading, after: Reading): Reading {
  const less = (later: Availability, earlier: Availability): Availability => ({
    eligible: later.eligible - earlier.eligible,
    returned: later.returned - earlier.returned,
    good: later.good - earlier.good,
    unchecked: later.unchecked - earlier.unchecked,
  })
  const faults = [...after.faults].map(
    ([name, count]) => [name, lessCount(count, before.faults.get(name))] as const,
  )
  return {
    calls: after.calls - before.calls,
    answered: after.answered - before.answered,
    ofAgents: less(after.ofAgents, before.ofAgents),
    ofServers: less(after.ofServers, before.ofServers),
    succeeded: after.succeeded - before.succeeded,
    failed: after.failed - before.failed,
    faults: new Map(faults),
    discovery: after.discovery - before.discovery,
  }
}

function lessCount(later: FaultCount, earlier: FaultCount | undefined): FaultCount {
  if (earlier === undefined) return later
  return mapCount((key) => later[key] - earlier[key])
}

function mapCount(value: (key: FateName | 'injected') => number): FaultCount {
  return {
    injected: value('injected'),
    masked: value('masked'),
    delayed: value('delayed'),
    surfaced: value('surfaced'),
    escaped: value('escaped'),
    not_reached: value('not_reached'),
  }
}

/** All faults together. */
export function totalOf({ faults }: Pick<Reading, 'faults'>): FaultCount {
  return mapCount((key) => [...faults.values()].reduce((total, count) => total + count[key], 0))
}

/** The counts of the engine, in the words of the metrics. */
export function countOf(status: FaultStatus): FaultCount {
  const { injected, masked, delayed, surfaced, escaped, notReached } = status
  return { injected, masked, delayed, surfaced, escaped, not_reached: notReached }
}
