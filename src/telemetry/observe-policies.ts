import { type Call, type CallRecord, fates as everyFate, type Outcome } from '../mesh/call.ts'
import type { Counting } from '../mesh/facts.ts'
import { facts } from '../policies/descriptions.ts'
import type { Metrics } from './metrics.ts'
import type { Counter } from './metrics/instruments.ts'
import { labelValue, OTHER } from './metrics/tool-series.ts'

/** Not a new one for each call. */
const NONE: readonly never[] = []

/** A fact that is counted, with all that is looked at for every call at hand. */
interface CountedFact {
  readonly slot: number
  readonly initial: unknown
  readonly counting: Counting<unknown>
  readonly counter: Counter<string>
  readonly perTool: boolean
}

/** Prepares the counting of what policies note on calls. */
export function countedFacts({ ofPolicies }: Pick<Metrics, 'ofPolicies'>): readonly CountedFact[] {
  return facts.flatMap(({ fact: { slot, initial, telemetry } }) => {
    const { counting } = telemetry
    if (counting === undefined) return []
    const perTool = counting.metric.labels.includes('tool')
    return { slot, initial, counting, counter: ofPolicies.counter(counting.metric), perTool }
  })
}

/** Counts what policies did to a call; most calls they do nothing to. `toolLabel`: what metrics call its tool. */
export function notePolicies(
  metrics: Metrics,
  counted: readonly CountedFact[],
  { server, record }: Call,
  outcome: Outcome,
  toolLabel: string | undefined,
): void {
  if (record.recoveries > 0) metrics.sessionRecoveries.inc({ server }, record.recoveries)
  if (outcome.kind === 'rejected') metrics.rejections.inc({ server, reason: outcome.error.reason })
  for (const reason of record.supersededRejections ?? NONE) metrics.rejections.inc({ server, reason })
  if (outcome.kind === 'answered' && outcome.partial !== undefined)
    metrics.partials.inc({ server, source: outcome.partial.source })
  const { facts: noted } = record
  for (const { slot, initial, counting, counter, perTool } of counted) {
    const value = noted[slot]
    if (value === initial) continue
    const own = counting.labels?.(value)
    const labels = perTool ? { server, tool: toolLabel ?? OTHER, ...own } : { server, ...own }
    counter.inc(labels, counting.by?.(value) ?? 1)
  }
}

type FaultMetrics = Pick<
  Metrics,
  'faultsInjected' | 'faultOutcomes' | 'faultDelay' | 'faultReactions' | 'faultsKept'
>

/** Counts the faults that were injected into a call of an agent, what became of them, and what was done about them. */
export function noteFaults(metrics: FaultMetrics, { faults, fates, rejectedOver }: CallRecord): void {
  for (const name of rejectedOver ?? NONE)
    metrics.faultReactions.inc({ fault: faultLabel(name), reaction: 'rejected' })
  if (faults !== undefined)
    for (const { name, resent } of faults)
      if (resent === true) metrics.faultReactions.inc({ fault: faultLabel(name), reaction: 'resent' })
  if (fates === undefined) return
  for (const { fault, fate, delayedMs = 0, isKept } of fates) {
    const label = faultLabel(fault.name)
    if (isKept === true) {
      if (fate === 'escaped') metrics.faultsKept.inc({ fault: label })
      continue
    }
    metrics.faultsInjected.inc({ fault: label, type: fault.type })
    // All of them at 0 from the first on: `rate()` misses the increase with which a series is born.
    for (const fate of everyFate) metrics.faultOutcomes.series({ fault: label, fate })
    metrics.faultDelay.series({ fault: label })
    metrics.faultsKept.series({ fault: label })
    metrics.faultOutcomes.inc({ fault: label, fate })
    if (delayedMs > 0) metrics.faultDelay.inc({ fault: label }, delayedMs / 1_000)
  }
}

/** Counts the faults that were injected into a question of the gateway's own. */
export function noteDiscoveryFaults(
  { discoveryFaults }: Pick<Metrics, 'discoveryFaults'>,
  { faults }: CallRecord,
): void {
  for (const { name, type, status } of faults ?? NONE)
    if (status === 'applied' || status === 'not_reached')
      discoveryFaults.inc({ fault: faultLabel(name), type })
}

/** Faults of the runtime API have names without end: they share one. */
const faultLabel = (name: string) => (name.startsWith('runtime-') ? '_runtime' : labelValue(name))
