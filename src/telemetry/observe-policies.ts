import type { Call, CallRecord, FaultFate, Outcome } from '../mesh/call.ts'
import type { Metrics } from './metrics.ts'
import { labelValue } from './metrics/tool-series.ts'

/** Whatever may become of a fault. */
const FATES: readonly FaultFate['fate'][] = ['masked', 'surfaced', 'escaped']

/** Not a new one for each call. */
const NONE: readonly never[] = []

/** Counts what policies did to a call; most calls they do nothing to. */
export function notePolicies(metrics: Metrics, { server, record }: Call, outcome: Outcome): void {
  if (record.recoveries > 0) metrics.sessionRecoveries.inc({ server }, record.recoveries)
  if (outcome.kind === 'rejected') metrics.rejections.inc({ server, reason: outcome.error.reason })
  for (const reason of record.overruled ?? NONE) metrics.rejections.inc({ server, reason })
  if (outcome.kind === 'answered' && outcome.partial !== undefined)
    metrics.partials.inc({ server, source: outcome.partial.source })
  if (record.retries > 0) metrics.retries.inc({ server, decision: 'sent' }, record.retries)
  if (record.hedges > 0) metrics.retries.inc({ server, decision: 'hedged' }, record.hedges)
  if (record.retryRefused !== undefined) metrics.retries.inc({ server, decision: record.retryRefused })
  if (record.replayed !== 'no') metrics.replays.inc({ server, how: record.replayed })
  if (record.infeasible) metrics.infeasible.inc({ server })
}

/** Counts the faults that were done to a call, and what became of them. */
export function noteFaults(
  metrics: Pick<Metrics, 'faultsInjected' | 'faultOutcomes'>,
  { faults, fates }: CallRecord,
): void {
  if (faults !== undefined)
    for (const { name, type, status } of faults)
      if (status === 'applied') metrics.faultsInjected.inc({ fault: faultLabel(name), type })
  if (fates === undefined) return
  for (const { fault, fate } of fates) {
    const label = faultLabel(fault.name)
    // At 0 from the first on: to Prometheus a series that is born with an escape has seen none.
    for (const handled of FATES) metrics.faultOutcomes.cell({ fault: label, handled })
    metrics.faultOutcomes.inc({ fault: label, handled: fate })
  }
}

/** Faults of the runtime API have names without end: they share one. */
const faultLabel = (name: string) => (name.startsWith('runtime-') ? '_runtime' : labelValue(name))
