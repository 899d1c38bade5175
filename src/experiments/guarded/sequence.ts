import { valueInWords } from '../../claims/judge.ts'
import type { Millis } from '../../mesh/clock.ts'
import { roundedDuration } from '../../units/duration.ts'
import { numbered } from '../../units/numbered.ts'
import type { Figures } from './meter.ts'
import type { RunRecord, SampledFigures } from './record.ts'

/** Sign `latency`: the p95 exceeds the p95 of the baseline by this factor. */
const SLOW = 2

/** Sign `retries`: the retries per begun call exceed the retries of the baseline by more than this number. */
const RETRIED = 0.5

/**
 * Signs `errors` and `rejections`: failed calls (or rejected attempts) per ended call exceed the baseline by more than
 * this number.
 */
const SHARE = 0.05

/** Minimum number of calls in a row of samples. A row with fewer calls shows no sign. */
const LEAST_CALLS = 5

/** A sign of trouble in the treatment, and the first time of the sign. */
export interface Sign {
  /** End of the first row of samples with the sign, in milliseconds since the start of the run. */
  readonly atMs: Millis
  readonly sign: 'faults' | 'latency' | 'retries' | 'rejections' | 'errors' | 'gate'
  /** The measured value and the value of the baseline. */
  readonly what: string
}

/**
 * Returns the signs of trouble in the treatment, by time. The first sign is the first effect of the faults, and the
 * last sign is the breach of the gate. In between: slow calls, retries, attempts rejected by the gateway (for each
 * reason), and failed calls. Signs of the same row have this order, because the true order is unknown. Empty without a
 * baseline or without an effect.
 */
export function sequenceOf(run: RunRecord): readonly Sign[] {
  const { baseline, detection, samples, rollback, breach } = run
  if (baseline === undefined || detection === undefined || baseline.calls === 0) return []
  const { firstEffectAtMs } = detection
  const endedMs = rollback?.atMs ?? Infinity
  const rows = samples.flatMap(({ atMs, phase, arms: { treatment } }) =>
    phase === 'stage' && atMs > firstEffectAtMs && treatment !== undefined ? [{ atMs, row: treatment }] : [],
  )
  const first = (sign: Sign['sign'], describe: (row: SampledFigures) => string | undefined): Sign[] => {
    for (const { atMs, row } of rows) {
      const what = describe(row)
      if (what !== undefined) return [{ atMs: Math.round(Math.min(atMs, endedMs)), sign, what }]
    }
    return []
  }
  const firstWithEnoughCalls = (sign: Sign['sign'], describe: (row: SampledFigures) => string | undefined) =>
    first(sign, (row) => (row.calls < LEAST_CALLS ? undefined : describe(row)))
  const baselineShareOf = sharesIn(baseline)
  const baselineRetries = retriesPerCallIn(samples)
  const rejectedFor = [...new Set(rows.flatMap(({ row }) => Object.keys(row.rejections)))]
  return [
    { atMs: Math.round(firstEffectAtMs), sign: 'faults' as const, what: `first effect of ${faultsOf(run)}` },
    ...firstWithEnoughCalls('latency', ({ p95 }) =>
      (p95 ?? 0) > SLOW * (baseline.p95 ?? Infinity)
        ? `p95 was ${roundedDuration(p95!)}, baseline ${roundedDuration(baseline.p95!)}`
        : undefined,
    ),
    ...first('retries', ({ begun, retries }) =>
      begun >= LEAST_CALLS && retries / begun > RETRIED + baselineRetries
        ? `${retries} retries while ${begun} calls began, baseline ${twoDigits(baselineRetries)} a call`
        : undefined,
    ),
    ...rejectedFor.flatMap((reason) =>
      firstWithEnoughCalls('rejections', ({ rejections: { [reason]: rejected = 0 }, calls }) =>
        rejected / calls > baselineShareOf(baseline.rejections[reason]) + SHARE
          ? `the gateway rejected ${numbered(rejected, 'attempt')} (${numbered(calls, 'call')} ended): ${reason}`
          : undefined,
      ),
    ),
    ...firstWithEnoughCalls('errors', ({ failed, calls }) =>
      failed / calls > baselineShareOf(baseline.failed) + SHARE
        ? `${percent(failed / calls)} of the calls failed, baseline ${percent(baselineShareOf(baseline.failed))}`
        : undefined,
    ),
    ...(breach === undefined || rollback?.atMs === undefined
      ? []
      : [
          { atMs: Math.round(endedMs), sign: 'gate' as const, what: `the gate ended the run: ${run.reason}` },
        ]),
  ].sort((a, b) => a.atMs - b.atMs)
}

/** Returns a function that divides a count by the calls of the figures. */
const sharesIn =
  ({ calls }: Figures) =>
  (count = 0) =>
    count / calls

/** Returns the retries per begun call in the baseline. */
function retriesPerCallIn(samples: RunRecord['samples']): number {
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
