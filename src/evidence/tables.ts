import { GROWTH, LEAST_MS } from '../experiments/guarded/meter.ts'
import type { RunSummary } from './summary.ts'
import { type ColumnOf, tableOf, type Table } from './table.ts'

/**
 * The number of the tables' schema, kept in each Parquet file. A changed or removed column raises the number; a new
 * column does not.
 */
export const TABLES_SCHEMA = 1

type Part<Key extends keyof RunSummary> = RunSummary[Key] extends readonly (infer Row)[] ? Row : never

/** Returns a table with a row for each part of a run, with `run_id` in front. */
const partsOf = <Row>(
  name: string,
  rowsOf: (run: RunSummary) => readonly Row[],
  columns: readonly ColumnOf<Row, RunSummary>[],
): Table<RunSummary> => tableOf(name, rowsOf, [['run_id', 'text', (_, { id }) => id], ...columns])

const json = (value: unknown): string => JSON.stringify(value)

type Cells = Part<'windows'>['cells']

/**
 * Returns quantiles of durations in milliseconds, each within 1 % of the truth; null without durations. `shares`: from 0
 * to 1, the smallest first.
 */
function quantiles(cells: Cells, shares: readonly number[]): readonly (number | null)[] {
  const isSorted = cells.every(([cell], at) => at === 0 || cells[at - 1]![0] <= cell)
  const sorted = isSorted ? cells : cells.toSorted(([a], [b]) => a - b)
  const total = sorted.reduce((sum, [, count]) => sum + count, 0)
  const found: number[] = []
  let seen = 0
  for (const [cell, count] of sorted) {
    seen += count
    while (count > 0 && found.length < shares.length && seen >= shares[found.length]! * total)
      found.push(LEAST_MS * GROWTH ** (cell - 0.5))
  }
  return shares.map((_, at) => found[at] ?? null)
}

/** Returns the windows of a run with their p50, p95 and p99. */
const measuredWindows = ({ windows }: RunSummary) =>
  windows.map((window) => {
    const [p50 = null, p95 = null, p99 = null] = quantiles(window.cells, [0.5, 0.95, 0.99])
    return { ...window, p50, p95, p99 }
  })

const runs = tableOf<RunSummary, RunSummary>('runs', (run) => [run], [
  ['run_id', 'text', ({ id }) => id],
  ['kind', 'text', ({ kind }) => kind],
  ['name', 'text', ({ name }) => name],
  ['plan', 'text', ({ plan }) => plan],
  ['shape', 'text', ({ shape }) => shape],
  ['run_at', 'time', ({ at }) => at],
  ['took_ms', 'number', ({ tookMs }) => tookMs],
  ['version', 'text', ({ version }) => version],
  ['gateway', 'text?', ({ gateway }) => gateway],
  ['boot_id', 'text?', ({ bootId }) => bootId],
  ['environment', 'text', ({ environment }) => environment],
  ['replicas', 'count', ({ replicas }) => replicas],
  ['config_hash', 'text', ({ hashes }) => hashes.config],
  ['policies_hash', 'text', ({ hashes }) => hashes.policies],
  ['faults_hash', 'text', ({ hashes }) => hashes.faults],
  ['targets_hash', 'text', ({ hashes }) => hashes.targets],
  ['load_hash', 'text', ({ hashes }) => hashes.load],
  ['seed', 'text?', ({ seed }) => seed],
  ['host_class', 'text', ({ host }) => host.class],
  ['host_cpu', 'text', ({ host }) => host.cpu],
  ['host_cores', 'count', ({ host }) => host.cores],
  ['host_memory_bytes', 'count', ({ host }) => host.memoryBytes],
  ['host_node', 'text', ({ host }) => host.node],
  ['host_container', 'flag', ({ host }) => host.container],
  ['era', 'text', ({ era }) => era],
  ['transport', 'text', ({ transport }) => transport],
  ['measured_by', 'text', ({ measuredBy }) => measuredBy],
  ['document', 'text?', ({ document }) => document],
  ['started_by', 'text', ({ by }) => by],
  ['approver', 'text?', ({ approver }) => approver],
  ['approver_proof', 'text?', ({ approverProof }) => approverProof],
  ['envelope', 'text?', ({ envelope }) => envelope],
  ['trust', 'text?', ({ trust }) => trust],
  ['targets', 'json', ({ targets }) => json(targets)],
  ['load_model', 'text', ({ load }) => load.model],
  ['load_rate', 'number?', ({ load }) => load.rate],
  ['load_concurrency', 'count?', ({ load }) => load.concurrency],
  ['rto_promised_ms', 'number?', ({ rto }) => rto.promisedMs],
  ['rto_measured_ms', 'number?', ({ rto }) => rto.measuredMs],
  ['every_ms', 'number?', ({ everyMs }) => everyMs],
  ['state', 'text', ({ state }) => state],
  ['verdict', 'text', ({ verdict }) => verdict],
  ['reasons', 'json', ({ reasons }) => json(reasons)],
  ['share', 'number?', ({ share }) => share],
])

const arms = partsOf('arms', (run) => run.arms, [
  ['name', 'text', ({ name }) => name],
  ['policy_set', 'text', ({ set }) => set],
  ['calls', 'count', ({ calls }) => calls],
  ['good', 'count', ({ good }) => good],
  ['wrong', 'count?', ({ wrong }) => wrong],
  ['rejected', 'count', ({ rejected }) => rejected],
  ['unjudged', 'count', ({ unjudged }) => unjudged],
  ['attempts', 'count', ({ attempts }) => attempts],
])

const faults = partsOf('faults', (run) => run.faults, [
  ['name', 'text', ({ name }) => name],
  ['type', 'text', ({ type }) => type],
  ['planned', 'count?', ({ planned }) => planned],
  ['drawn', 'count', ({ drawn }) => drawn],
  ['applied', 'count', ({ applied }) => applied],
  ['not_applicable', 'count', ({ notApplicable }) => notApplicable],
  ['not_reached', 'count', ({ notReached }) => notReached],
  ['masked', 'count', ({ masked }) => masked],
  ['delayed', 'count', ({ delayed }) => delayed],
  ['surfaced', 'count', ({ surfaced }) => surfaced],
  ['escaped', 'count', ({ escaped }) => escaped],
])

const windows = partsOf('windows', measuredWindows, [
  ['phase', 'text', ({ phase }) => phase],
  ['stage', 'count?', ({ stage }) => stage],
  ['arm', 'text', ({ arm }) => arm],
  ['from_ms', 'number', ({ fromMs }) => fromMs],
  ['to_ms', 'number', ({ toMs }) => toMs],
  ['calls', 'count', ({ calls }) => calls],
  ['good', 'count', ({ good }) => good],
  ['failed', 'count', ({ failed }) => failed],
  ['wrong', 'count?', ({ wrong }) => wrong],
  ['p50_ms', 'number?', ({ p50 }) => p50],
  ['p95_ms', 'number?', ({ p95 }) => p95],
  ['p99_ms', 'number?', ({ p99 }) => p99],
  ['cells', 'json', ({ cells }) => json(cells)],
])

const transitions = partsOf('transitions', (run) => run.transitions, [
  ['at_ms', 'number', ({ atMs }) => atMs],
  ['layer', 'text', ({ layer }) => layer],
  ['name', 'text', ({ name }) => name],
  ['from_state', 'text', ({ from }) => from],
  ['to_state', 'text', ({ to }) => to],
])

const recoveries = partsOf('recoveries', (run) => run.recoveries, [
  ['layer', 'text', ({ layer }) => layer],
  ['name', 'text', ({ name }) => name],
  ['recovery_ms', 'number', ({ ms }) => ms],
  ['censored', 'flag', ({ censored }) => censored],
])

const claims = partsOf('claims', (run) => run.claims, [
  ['text', 'text', ({ text }) => text],
  ['value', 'number?', ({ value }) => value],
  ['low', 'number?', ({ low }) => low],
  ['high', 'number?', ({ high }) => high],
  ['n', 'count', ({ n }) => n],
  ['status', 'text', ({ status }) => status],
])

const estimates = partsOf('estimates', (run) => run.estimates, [
  ['quantity', 'text', ({ of }) => of],
  ['expected', 'text', ({ expected }) => expected],
  ['found', 'text', ({ found }) => found],
  ['is_right', 'flag', ({ right }) => right],
])

/**
 * The tables over the index of runs. Names are in snake case and no reserved words of SQL; `…_ms` are durations in
 * milliseconds, or milliseconds since the run began; shares are in [0, 1].
 */
export const runTables: readonly Table<RunSummary>[] = [
  runs,
  arms,
  faults,
  windows,
  transitions,
  recoveries,
  claims,
  estimates,
]
