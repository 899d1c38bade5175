import assert from 'node:assert/strict'
import { mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { asyncBufferFromFile, parquetMetadataAsync, parquetReadObjects } from 'hyparquet'
import { exportRuns } from '../../../src/commands/evidence/export.ts'
import { filled, writeTables } from '../../../src/commands/evidence/table-files.ts'
import { csvRows } from '../../../src/evidence/csv.ts'
import { type Cell, type Column, createTable, written } from '../../../src/evidence/table.ts'
import { runTables } from '../../../src/evidence/tables.ts'
import { indexed } from '../../evidence/runs.ts'
import { Cancellation } from '../../../src/mesh/cancel.ts'
import { tableRun, tableRuns } from '../../evidence/table-runs.ts'
import { GameDayStore } from '../../../src/gamedays/store.ts'
import { gameDayTables } from '../../../src/gamedays/tables.ts'
import { tableGameDays } from '../../gamedays/table-gamedays.ts'
import { withDuckdb } from '../../support/duckdb.ts'

const folder = await mkdtemp(join(tmpdir(), 'breakwater-export-'))
after(() => rm(folder, { recursive: true, force: true }))

/** More rows than a row group holds. */
const runs = tableRuns(1_203)
const state = join(folder, 'state')
await mkdir(state)
await indexed(state, runs)
const store = await GameDayStore.open(state)
for (const record of tableGameDays) await store.write(record)

async function run(...args: string[]) {
  const lines: string[] = []
  const errors: string[] = []
  const out = { stdout: (line: string) => lines.push(line), stderr: (line: string) => errors.push(line) }
  const code = await exportRuns(args, out, {})
  return { code, lines, errors }
}

/** All tables with the rows that an export must hold. */
const tables = [
  ...runTables.map((table) => ({ ...table, rows: runs.flatMap((run) => table.rowsOf(run)) })),
  ...gameDayTables.map((table) => ({ ...table, rows: tableGameDays.flatMap((day) => table.rowsOf(day)) })),
]

/** Exports once, for several tests. */
const exported = run(
  ...['--state', state],
  ...['--parquet', join(folder, 'parquet')],
  ...['--jsonl', join(folder, 'jsonl')],
  ...['--csv', join(folder, 'csv')],
)

test('an export lists its files, and leaves no drafts', async () => {
  const { code, lines, errors } = await exported
  assert.deepEqual([code, errors], [0, []])
  assert.equal(lines.length, 1 + 3 * tables.length)
  for (const format of ['parquet', 'jsonl', 'csv'])
    assert.deepEqual(
      (await readdir(join(folder, format))).sort(),
      tables.map(({ name }) => `${name}.${format}`).sort(),
    )
})

test('hyparquet reads the types, nulls and values that were written', async () => {
  await exported
  const types = {
    text: ['BYTE_ARRAY', 'UTF8'],
    json: ['BYTE_ARRAY', 'UTF8'],
    time: ['INT64', 'TIMESTAMP_MILLIS'],
    number: ['DOUBLE', undefined],
    count: ['INT64', undefined],
    flag: ['BOOLEAN', undefined],
  }
  const expected = (cell: Cell, { type }: Column) =>
    typeof cell !== 'number'
      ? cell
      : type === 'count'
        ? BigInt(cell)
        : type === 'time'
          ? new Date(cell)
          : cell
  for (const table of tables) {
    const file = await asyncBufferFromFile(join(folder, 'parquet', `${table.name}.parquet`))
    const metadata = await parquetMetadataAsync(file)
    assert.deepEqual(
      metadata.schema.slice(1).map(({ name, type, converted_type, repetition_type }) => {
        return [name, type, converted_type, repetition_type]
      }),
      table.columns.map(({ name, type, isNullable }) => {
        return [name, ...types[type], isNullable ? 'OPTIONAL' : 'REQUIRED']
      }),
    )
    assert.deepEqual(metadata.key_value_metadata, [
      { key: 'breakwater.table', value: table.name },
      { key: 'breakwater.schema', value: '1' },
    ])
    assert.ok(metadata.row_groups.every(({ columns }) => columns[0]?.meta_data?.codec === 'SNAPPY'))
    const { rows } = table
    const read = await parquetReadObjects({ file })
    assert.equal(read.length, rows.length)
    read.forEach((row, n) =>
      assert.deepEqual(
        table.columns.map(({ name }) => row[name] as unknown),
        table.columns.map((column, at) => expected(rows[n]![at]!, column)),
      ),
    )
  }
})

test('DuckDB reads the same tables from Parquet, JSON Lines and CSV', withDuckdb, async () => {
  await exported
  const { DuckDBInstance } = await import('@duckdb/node-api')
  const connection = await (await DuckDBInstance.create(':memory:')).connect()
  for (const table of tables) {
    await connection.run(createTable(table))
    const file = (format: string) => join(folder, format, `${table.name}.${format}`)
    await connection.run(`INSERT INTO ${table.name} SELECT * FROM read_parquet('${file('parquet')}')`)
    const described = async (from: string) =>
      (await connection.runAndReadAll(`SELECT column_name, column_type FROM (DESCRIBE ${from})`)).getRows()
    assert.deepEqual(await described(table.name), await described(`SELECT * FROM '${file('parquet')}'`))
    // Names work without quotation marks.
    const names = table.columns.map(({ name }) => name).join(', ')
    const read = await connection.runAndReadAll(`SELECT ${names} FROM ${table.name}`)
    assert.deepEqual(
      read.getRowsJS(),
      table.rows.map((row) =>
        row.map((cell, at) => {
          if (typeof cell !== 'number') return cell
          const { type } = table.columns[at]!
          return type === 'count' ? BigInt(cell) : type === 'time' ? new Date(cell) : cell
        }),
      ),
    )
    const columns = table.columns.map(({ name, type }) => `'${name}': '${duckdbTypes[type]}'`).join(', ')
    for (const from of [
      `read_json('${file('jsonl')}', format = 'newline_delimited', columns = {${columns}})`,
      `read_csv('${file('csv')}', header = true, quote = '"', escape = '"', columns = {${columns}})`,
    ]) {
      const [[count]] = (
        await connection.runAndReadAll(`SELECT count(*) FROM (FROM ${from} EXCEPT ALL FROM ${table.name})`)
      ).getRows() as [[bigint]]
      const [[total]] = (await connection.runAndReadAll(`SELECT count(*) FROM ${from}`)).getRows() as [
        [bigint],
      ]
      assert.deepEqual([count, Number(total)], [0n, table.rows.length], from)
    }
  }
  connection.closeSync()
})

const duckdbTypes = {
  text: 'VARCHAR',
  json: 'VARCHAR',
  time: 'TIMESTAMP',
  number: 'DOUBLE',
  count: 'BIGINT',
  flag: 'BOOLEAN',
}

test('JSON Lines and CSV hold the cells as written', async () => {
  await exported
  for (const table of tables) {
    const rows = table.rows.map((row) => row.map((cell, at) => written(cell, table.columns[at]!)))
    const lines = (await readFile(join(folder, 'jsonl', `${table.name}.jsonl`), 'utf8')).trimEnd().split('\n')
    assert.deepEqual(
      lines.map((line) => Object.values<unknown>(JSON.parse(line) as Record<string, unknown>)),
      rows,
    )
    const [head, ...records] = csvRows(await readFile(join(folder, 'csv', `${table.name}.csv`), 'utf8'))
    assert.deepEqual(
      head,
      table.columns.map(({ name }) => name),
    )
    assert.deepEqual(
      records,
      rows.map((row) => row.map((cell) => String(cell ?? ''))),
    )
  }
})

test('an index without runs gives files without rows', async () => {
  const empty = join(folder, 'empty')
  for (const format of ['parquet', 'jsonl', 'csv'] as const)
    await writeTables(empty, format, [filled(runTables, [])])
  const file = await asyncBufferFromFile(join(empty, 'runs.parquet'))
  assert.deepEqual(await parquetReadObjects({ file }), [])
  assert.equal((await parquetMetadataAsync(file)).schema.length, 1 + runTables[0]!.columns.length)
  assert.equal(await readFile(join(empty, 'runs.jsonl'), 'utf8'), '')
  assert.equal(csvRows(await readFile(join(empty, 'arms.csv'), 'utf8')).length, 1)
})

test('an export that fails changes no file', async () => {
  const kept = join(folder, 'kept')
  await writeTables(kept, 'jsonl', [filled(runTables, [tableRun(0)])])
  const before = await readFile(join(kept, 'runs.jsonl'), 'utf8')
  function* failing() {
    for (let n = 1; n < 3_000; n++) yield tableRun(n)
    throw new Error('the index is broken')
  }
  await assert.rejects(writeTables(kept, 'jsonl', [filled(runTables, failing())]), {
    message: 'the index is broken',
  })
  assert.equal(await readFile(join(kept, 'runs.jsonl'), 'utf8'), before)
  assert.equal((await readdir(kept)).length, runTables.length)
})

test('an export without a folder is misuse', async () => {
  const { code, errors } = await run('--state', state)
  assert.equal(code, 2)
  assert.match(errors[0] ?? '', /expected --parquet DIR, or --jsonl DIR, or --csv DIR/)
})

test('an export never writes into the state folder of a gateway', async () => {
  const before = await readFile(join(state, 'runs.jsonl'))
  const link = join(folder, 'link')
  await symlink(state, link)
  for (const where of [state, link])
    for (const format of ['--jsonl', '--csv']) {
      const { code, errors } = await run('--state', state, format, where)
      assert.equal(code, 1)
      assert.match(errors[0] ?? '', /is the state folder of a gateway.*: name another folder$/)
    }
  assert.deepEqual(await readFile(join(state, 'runs.jsonl')), before)
})

test('an export that meets a folder, or is interrupted, changes no file', async () => {
  const taken = join(folder, 'taken')
  await mkdir(join(taken, 'claims.csv'), { recursive: true })
  await writeFile(join(taken, 'runs.csv'), 'old')
  await assert.rejects(
    writeTables(taken, 'csv', [filled(runTables, [tableRun(0)])]),
    /claims.csv: it is a folder/,
  )
  await rm(join(taken, 'claims.csv'), { recursive: true })
  const stop = new Cancellation()
  function* interrupted() {
    yield tableRun(0)
    stop.abort('signal')
    yield tableRun(1)
  }
  await assert.rejects(
    writeTables(taken, 'csv', [filled(runTables, interrupted())], stop),
    /interrupted: no csv file/,
  )
  assert.deepEqual(await readdir(taken), ['runs.csv'])
  assert.equal(await readFile(join(taken, 'runs.csv'), 'utf8'), 'old')
})
