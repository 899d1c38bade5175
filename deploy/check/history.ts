import { indexed, summary } from '../../test/evidence/runs.ts'
import type { RunSummary } from '../../src/evidence/summary.ts'

const hour = 3_600_000
const day = 24 * hour

/** Writes an index of earlier runs to a state folder: plans of each verdict, due and overdue, fast and slow. */
export async function writeHistory(stateDir: string): Promise<void> {
  const rto = (measured: number | null) => ({ promisedMs: 30_000, measuredMs: measured })
  await indexed(stateDir, [
    ...runsOf(12, 'latency', { everyMs: 30 * day, rto: rto(12_000) }),
    ...runsOf(9, 'process-kill', { rto: rto(21_000) }),
    runOf(20, 'process-kill', { rto: rto(47_000), verdict: 'failed', state: 'aborted' }),
    ...runsOf(5, 'pool-cut', { everyMs: 7 * day, verdict: 'held (weak)', rto: rto(18_000) }, 300),
    runOf(9, 'pool-cut', {
      everyMs: 7 * day,
      rto: rto(null),
      faults: [],
      verdict: 'no evidence',
      reasons: ['no_effective_fault', 'below_floor'],
      state: 'inconclusive',
    }),
    runOf(50, 'credential', { everyMs: 90 * day, rto: rto(null), verdict: 'failed', state: 'deviated' }),
  ])
}

/** A run that ended `hours` ago. */
function runOf(hours: number, name: string, more: Partial<RunSummary>): RunSummary {
  const tookMs = 120_000
  return summary(0, { id: `${name}-${hours}`, name, at: Date.now() - hours * hour - tookMs, tookMs, ...more })
}

/** Daily runs, the last `hours` ago. */
const runsOf = (count: number, name: string, more: Partial<RunSummary>, hours = 30) =>
  Array.from({ length: count }, (_, nth) => runOf(hours + 24 * (count - 1 - nth), name, more))
