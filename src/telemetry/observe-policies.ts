import type { Call, CallRecord, Outcome } from '../mesh/call.ts'
import { fates as everyFate, faultFates, injectedFaults, rejectedOver } from '../mesh/injected.ts'
import type { Counting } from '../mesh/record.ts'
import { facts } from '../policies/descriptions.ts'
import type { Metrics } from './metrics.ts'
import type { Counter } from './metrics/instruments.ts'
import { OTHER } from './metrics/label-value.ts'

/** An empty array, shared so that calls need no new array. */
const NONE: readonly never[] = []

/** A fact that a metric counts, prepared for use in every call. */
interface CountedFact {
  readonly slot: number
  readonly initial: unknown
  readonly counting: Counting<unknown>
  readonly counter: Counter<string>
  readonly perTool: boolean
  readonly perArm: boolean
}

/** Returns the facts that metrics count, with their metrics. */
export function countedFacts({ ofPolicies }: Pick<Metrics, 'ofPolicies'>): readonly CountedFact[] {
  return facts.flatMap(({ fact: { slot, initial, telemetry } }) => {
    const { counting } = telemetry
    if (counting === undefined) return []
    const { metric } = counting
    const perTool = metric.labels.includes('tool')
    const perArm = metric.labels.includes('arm')
    return { slot, initial, counting, counter: ofPolicies.counter(metric), perTool, perArm }
  })
}

/** Counts the actions of policies on a call; most calls have no actions. `toolLabel`: the tool's label in metrics. */
export function notePolicies(
  metrics: Metrics,
  counted: readonly CountedFact[],
  { server, record }: Call,
  outcome: Outcome,
  toolLabel: string | undefined,
): void {
  const { arm } = record
  if (record.recoveries > 0) metrics.sessionRecoveries.inc({ server }, record.recoveries)
  if (outcome.kind === 'rejected') metrics.rejections.inc({ server, reason: outcome.error.reason, arm })
  for (const reason of record.supersededRejections ?? NONE) metrics.rejections.inc({ server, reason, arm })
  if (outcome.kind === 'answered' && outcome.partial !== undefined)
    metrics.partials.inc({ server, source: outcome.partial.source, arm })
  const { slots } = record
  for (const { slot, initial, counting, counter, perTool, perArm } of counted) {
    const value = slots[slot]
    if (value === initial) continue
    const labels: Record<string, string> = { server, ...counting.labels?.(value) }
    if (perTool) labels.tool = toolLabel ?? OTHER
    if (perArm) labels.arm = arm
    counter.inc(labels, counting.by?.(value) ?? 1)
  }
}

type FaultMetrics = Pick<
  Metrics,
  'faultsInjected' | 'faultOutcomes' | 'faultDelay' | 'faultReactions' | 'faultsKept' | 'faultNames'
>

/** Counts the faults injected into an agent's call, the fates of these faults, and the reactions of policies. */
export function noteFaults(metrics: FaultMetrics, record: CallRecord): void {
  const { arm } = record
  for (const name of rejectedOver.of(record) ?? NONE)
    metrics.faultReactions.inc({ fault: metrics.faultNames.labelOf(name), reaction: 'rejected', arm })
  for (const { name, resent } of injectedFaults.of(record) ?? NONE)
    if (resent === true)
      metrics.faultReactions.inc({ fault: metrics.faultNames.labelOf(name), reaction: 'resent', arm })
  for (const { fault, fate, delayedMs = 0, isKept } of faultFates.of(record) ?? NONE) {
    const labels = { fault: metrics.faultNames.labelOf(fault.name), arm }
    if (isKept === true) {
      if (fate === 'escaped') metrics.faultsKept.inc(labels)
      continue
    }
    metrics.faultsInjected.inc({ ...labels, type: fault.type })
    // Creates the series of all fates at 0, because `rate()` of Prometheus misses the first increase of a new series.
    for (const fate of everyFate) metrics.faultOutcomes.series({ ...labels, fate })
    metrics.faultDelay.series(labels)
    metrics.faultsKept.series(labels)
    metrics.faultOutcomes.inc({ ...labels, fate })
    if (delayedMs > 0) metrics.faultDelay.inc(labels, delayedMs / 1_000)
  }
}

/** Counts the faults injected into one of the gateway's own requests. */
export function noteDiscoveryFaults(
  metrics: Pick<Metrics, 'discoveryFaults' | 'faultNames'>,
  record: CallRecord,
): void {
  for (const { name, type, status } of injectedFaults.of(record) ?? NONE)
    if (status === 'applied' || status === 'not_reached')
      metrics.discoveryFaults.inc({ fault: metrics.faultNames.labelOf(name), type })
}
