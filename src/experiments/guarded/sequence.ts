import { valueInWords } from '../../claims/judge.ts'
import type { Millis } from '../../mesh/clock.ts'
import { roundedDuration } from '../../units/duration.ts'
import { numbered } from '../../units/numbered.ts'
import type { Figures } from './meter.ts'
import type { RunRecord, SampledFigures } from './record.ts'

/** A latency sign: p95 above this many times the p95 of the baseline. */
const SLOW = 2

/** A sign of retries: retries per begun call above those of the baseline by more than this number. */
const RETRIED = 0.5

/** A sign of errors or of rejections: above the baseline by more than this share of the calls. */
const SHARE = 0.05

/** A row with fewer calls is no sign. */
const LEAST_CALLS = 5

/** The first moment at which something about the treatment changed. */
export interface Sign {
  /** Milliseconds since the run began: the end of the row of samples that shows the sign. */
  readonly atMs: Millis
  readonly sign: 'faults' | 'latency' | 'retries' | 'rejections' | 'errors' | 'gate'
  /** The measured value beside the value of the baseline. */
  readonly what: string
}

/**
 * Returns the order in which the treatment showed signs of trouble: the first effect of the faults, slow calls,
 * retries, attempts rejected by the gateway itself (by reason), failed calls, and the breach of the gate. Empty without a
 * baseline or without an effect. Signs of the same row stand in this order, because their true order is unknown.
 */
export function sequenceOf(run: RunRecord): readonly Sign[] {
  const { baseline, detection, samples, rollback, breach } = run
  if (baseline === undefined || detection === undefined || baseline.calls === 0) return []
  const { firstEffectAtMs } = detection
  const endedMs = rollback?.atMs ?? Infinity
  const rows = samples.flatMap(({ atMs, phase, arms: { treatment } }) =>
    phase === 'stage' && atMs > firstEffectAtMs && treatment !== undefined ? [{ atMs, row: treatment }] : [],
  )
  const first = (sign: Sign['sign'], says: (row: SampledFigures) => string | undefined): Sign[] => {
    for (const { atMs, row } of rows) {
      const what = says(row)
      if (what !== undefined) return [{ atMs: Math.round(Math.min(atMs, endedMs)), sign, what }]
    }
    return []
  }
  const firstOfEnded = (sign: Sign['sign'], says: (row: SampledFigures) => string | undefined) =>
    first(sign, (row) => (row.calls < LEAST_CALLS ? undefined : says(row)))
  const usual = inCalls(baseline)
  const retriesBefore = retriesIn(samples)
  const rejectedFor = [...new Set(rows.flatMap(({ row }) => Object.keys(row.rejections)))]
  return [
    { atMs: Math.round(firstEffectAtMs), sign: 'faults' as const, what: `first effect of ${faultsOf(run)}` },
    ...firstOfEnded('latency', ({ p95 }) =>
      (p95 ?? 0) > SLOW * (baseline.p95 ?? Infinity)
        ? `p95 was ${roundedDuration(p95!)}, usually ${roundedDuration(baseline.p95!)}`
        : undefined,
    ),
    ...first('retries', ({ begun, retries }) =>
      begun >= LEAST_CALLS && retries / begun > RETRIED + retriesBefore
        ? `${retries} retries while ${begun} calls began, usually ${twoDigits(retriesBefore)} a call`
        : undefined,
    ),
    ...rejectedFor.flatMap((reason) =>
      firstOfEnded('rejections', ({ rejections: { [reason]: rejected = 0 }, calls }) =>
        rejected / calls > usual(baseline.rejections[reason]) + SHARE
          ? `the gateway itself rejected ${numbered(rejected, 'attempt')} of ${calls} calls: ${reason}`
          : undefined,
      ),
    ),
    ...firstOfEnded('errors', ({ failed, calls }) =>
      failed / calls > usual(baseline.failed) + SHARE
        ? `${percent(failed / calls)} of the calls failed, usually ${percent(usual(baseline.failed))}`
        : undefined,
    ),
    ...(breach === undefined || rollback?.atMs === undefined
      ? []
      : [
          { atMs: Math.round(endedMs), sign: 'gate' as const, what: `the gate ended the run: ${run.reason}` },
        ]),
  ].sort((a, b) => a.atMs - b.atMs)
}

const inCalls =
  ({ calls }: Figures) =>
  (count = 0) =>
    count / calls

/** Returns the retries per begun call in the baseline. */
function retriesIn(samples: RunRecord['samples']): number {
  const rows = samples.flatMap(({ phase, arms: { all } }) =>
    phase === 'baseline' && all !== undefined ? [all] : [],
  )
  const begun = rows.reduce((sum, row) => sum + row.begun, 0)
  return begun === 0 ? 0 : rows.reduce((sum, row) => sum + row.retries, 0) / begun
}

const faultsOf = ({ faults }: RunRecord) =>
  faults
    .filter(({ injected }) => injected > 0)
    .map(({ name, type }) => `${name} (${type})`)
    .join(', ')

const percent = (share: number) => valueInWords('share', share)

const twoDigits = (value: number) => String(Number(value.toPrecision(2)))
