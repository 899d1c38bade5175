import type { RunRecord, SampleRow } from '../experiments/guarded/record.ts'
import type { GameDayRecord } from './record.ts'
import type { StoredRuns } from './report-experiments.ts'
import type { GameDayReport } from './report-shape.ts'

type Losses = GameDayReport['losses']
type Row = Losses[number]['rows'][number]

/** Most rows of all runs together, and of one run. */
const MOST_ROWS = 2_400
const MOST_ROWS_A_RUN = 120

/** Most shown runs: a paused experiment begins anew, as often as the GameDay has pauses. */
const MOST_RUNS = 64

/**
 * Returns the calls over time of the runs whose records are kept. The calls of the treatment stand for stages, and all
 * calls for the time before and after.
 */
export function lossesOf({ steps, startedAt }: GameDayRecord, { records }: StoredRuns): Losses {
  const runs = steps
    .flatMap(({ name, runs }) => runs.map((id) => ({ experiment: name, run: id, record: records.get(id) })))
    .filter(({ record }) => record?.beganAt !== undefined && record.samples.length > 1)
    .slice(-MOST_RUNS)
  const most = Math.min(MOST_ROWS_A_RUN, Math.floor(MOST_ROWS / Math.max(1, runs.length)))
  return runs.map(({ experiment, run, record }) => ({
    experiment,
    run,
    rows: rowsOf(record!, startedAt, most),
  }))
}

function rowsOf({ samples, beganAt }: RunRecord, startedAt: number, most: number): Row[] {
  const beginMs = beganAt! - startedAt
  const size = Math.ceil(samples.length / most)
  const rows: Row[] = []
  for (let at = 0; at < samples.length; at += size) {
    const part = samples.slice(at, at + size).map(figuresOf)
    const quantiles = part.flatMap(({ p95 }) => p95 ?? [])
    rows.push([
      Math.round(beginMs + samples[Math.min(at + size, samples.length) - 1]!.atMs),
      part.reduce((sum, { calls }) => sum + calls, 0),
      part.reduce((sum, { failed }) => sum + failed, 0),
      quantiles.length === 0 ? null : Math.max(...quantiles),
    ])
  }
  return rows
}

const none = { calls: 0, failed: 0, p95: undefined }

const figuresOf = ({ phase, arms }: SampleRow) => arms[phase === 'stage' ? 'treatment' : 'all'] ?? none
