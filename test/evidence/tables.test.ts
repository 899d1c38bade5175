import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { z } from 'zod'
import { runSummary } from '../../src/evidence/summary.ts'
import { createTable } from '../../src/evidence/table.ts'
import { runTables } from '../../src/evidence/tables.ts'
import { tableRun } from './table-runs.ts'

/** Columns that have another name than their field, and fields that become several columns. */
const renamed: Readonly<Record<string, readonly string[]>> = {
  'runs.id': ['run_id'],
  'runs.at': ['run_at'],
  'runs.by': ['started_by'],
  'runs.hashes': ['config_hash', 'policies_hash', 'faults_hash', 'targets_hash', 'load_hash'],
  'runs.host': ['host_class', 'host_cpu', 'host_cores', 'host_memory_bytes', 'host_node', 'host_container'],
  'runs.load': ['load_model', 'load_rate', 'load_concurrency'],
  'runs.rto': ['rto_promised_ms', 'rto_measured_ms'],
  'arms.set': ['policy_set'],
  'transitions.from': ['from_state'],
  'transitions.to': ['to_state'],
  'recoveries.ms': ['recovery_ms'],
  'estimates.of': ['quantity'],
  'estimates.right': ['is_right'],
}

const snake = (name: string) => name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)

test('every field of a summary is a column or a table', () => {
  for (const { name, columns } of runTables) {
    const shape =
      name === 'runs'
        ? runSummary.shape
        : (runSummary.shape[name as 'arms'].element as z.ZodObject<z.ZodRawShape>).shape
    const names = columns.map((column) => column.name)
    for (const field of Object.keys(shape)) {
      if (field === 'format' || (name === 'runs' && runTables.some((table) => table.name === field))) continue
      for (const column of renamed[`${name}.${field}`] ?? [snake(field)])
        assert.ok(names.includes(column), `${name}.${field} is no column: ${names.join(', ')}`)
    }
  }
})

test('the fixtures are valid summaries', () => {
  for (const n of [0, 1, 2, 3]) assert.doesNotThrow(() => runSummary.parse(tableRun(n)))
})

test('only columns that allow nulls have nulls, and each nullable column has one in the fixtures', () => {
  for (const { name, columns, rowsOf } of runTables) {
    const rows = [0, 1].flatMap((n) => rowsOf(tableRun(n)))
    columns.forEach((column, at) => {
      assert.equal(
        rows.some((row) => row[at] === null),
        column.isNullable,
        `${name}.${column.name}`,
      )
    })
  }
})

test('rows of parts begin with the run, and keep their order', () => {
  const transitions = runTables.find(({ name }) => name === 'transitions')!
  const run = tableRun(4)
  const [first] = run.transitions
  const twice = { ...run, transitions: [first!, { ...first!, atMs: 2_000, to: 'half-open' }] }
  assert.deepEqual(transitions.rowsOf(twice), [
    ['run-000004', 1_500.5, 'breaker', 'files', 'closed', 'open'],
    ['run-000004', 2_000, 'breaker', 'files', 'closed', 'half-open'],
  ])
})

test('quantiles of durations come from the cells, in any order of the cells', () => {
  const windows = runTables.find(({ name }) => name === 'windows')!
  const run = tableRun(0)
  const quantiles = (cells: [number, number][]) => {
    const [row] = windows.rowsOf({ ...run, windows: [{ ...run.windows[0]!, cells }] })
    return ['p50_ms', 'p95_ms', 'p99_ms'].map(
      (name) => row![windows.columns.findIndex((column) => column.name === name)],
    )
  }
  const middle = (cell: number) => 0.1 * 1.02 ** (cell - 0.5)
  assert.deepEqual(
    quantiles([
      [300, 2],
      [10, 90],
      [200, 8],
    ]),
    [middle(10), middle(200), middle(300)],
  )
  assert.deepEqual(quantiles([]), [null, null, null])
  assert.deepEqual(quantiles([[5, 0]]), [null, null, null])
})

test('the statement that creates a table gives each column its type', () => {
  const recoveries = runTables.find(({ name }) => name === 'recoveries')!
  assert.equal(
    createTable(recoveries),
    'CREATE TABLE "recoveries" ("run_id" VARCHAR NOT NULL, "layer" VARCHAR NOT NULL, "name" VARCHAR NOT NULL, ' +
      '"recovery_ms" DOUBLE NOT NULL, "censored" BOOLEAN NOT NULL)',
  )
})
