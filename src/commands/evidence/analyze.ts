import { mkdtemp, readFile, rm, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Env } from '../../config/files/interpolate.ts'
import { csvLine } from '../../evidence/csv.ts'
import {
  DELIVERY_QUERY,
  type Deployment,
  deploymentsTable,
  readDeployments,
} from '../../evidence/deployments.ts'
import { type Cell, createTable } from '../../evidence/table.ts'
import { runTables } from '../../evidence/tables.ts'
import { gameDayTables } from '../../gamedays/tables.ts'
import {
  Misuse,
  optionLines,
  type Output,
  runCommand,
  UnusableInput,
  type Values,
} from '../shared/arguments.ts'
import { endingInOrder } from '../shared/signals.ts'
import { table } from '../shared/table.ts'
import { askSql, MEMORY_BYTES, requireSql, SQL_PACKAGE, type SqlRows, type SqlValue } from './sql.ts'
import { storedGameDays } from './stored-gamedays.ts'
import { eachRun, stateFolder, storedRunsOptions } from './stored-runs.ts'
import { filled, writeTables } from './table-files.ts'

/** Largest file of deployments, in bytes. */
const DEPLOYMENTS_BYTES = 64_000_000

/** Most rows that a user can ask for. */
const MOST_ROWS = 100_000

const options = {
  json: { kind: 'flag', about: 'prints JSON: the columns, the rows, and whether there are more' },
  csv: { kind: 'flag', about: 'prints CSV' },
  rows: {
    kind: 'integer',
    min: 1,
    max: MOST_ROWS,
    value: 'N',
    default: '1000',
    about: 'most rows to print',
  },
  timeout: { kind: 'duration', min: 1, value: 'TIME', default: '5s', about: 'the query is stopped then' },
  deployments: {
    kind: 'text',
    value: 'FILE',
    about: 'fills the table "deployments" from a JSON array or CSV of a CI system',
  },
  'unbounded-memory': {
    kind: 'flag',
    about: 'runs the query also where the system cannot limit its memory',
  },
  ...storedRunsOptions,
} as const

const tables = [...runTables, ...gameDayTables, deploymentsTable]

const usage = `breakwater analyze 'SELECT …' [--json | --csv]

  Answers one query over the index of runs, in SQL of DuckDB (npm install ${SQL_PACKAGE.name}@${SQL_PACKAGE.version}).
  Tables: ${[...runTables, deploymentsTable].map(({ name }) => name).join(', ')},
  ${gameDayTables.map(({ name }) => name).join(', ')}.
  "SHOW TABLES" and "DESCRIBE runs" list tables and columns. Tables about a run name the run in "run_id", tables about a
  GameDay name the GameDay in "gameday_id". Times are in UTC, durations in milliseconds, shares from 0 to 1.

  The query reads these tables only: no file, no network, no setting. On Linux its process may use ${MEMORY_BYTES / 1e6} MB of
  memory; other systems do not limit the memory, and need --unbounded-memory.

${optionLines(options)}

  The four delivery figures, with --deployments FILE (columns ${deploymentsTable.columns
    .slice(0, 5)
    .map(({ name }) => name)
    .join(', ')},
  ${deploymentsTable.columns
    .slice(5)
    .map(({ name }) => name)
    .join(', ')}):

${DELIVERY_QUERY.replaceAll(/^/gm, '    ')}

  Exit codes: 0; 1 when the query fails, is refused or is stopped; 2 for wrong arguments.`

/** Characters per line of a table without a terminal. */
const WIDE = 200

/** Runs `breakwater analyze` with the arguments after its name. Resolves to the exit code. */
export function analyze(args: readonly string[], out: Output, env: Env): Promise<number> {
  return runCommand(args, { usage, options, positionals: ['SELECT'] }, out, async (values, [sql = '']) => {
    if (values.json && values.csv) throw new Misuse('--json and --csv exclude each other')
    const answer = await answerTo(sql, values, { env, out })
    print(answer, values, out)
    if (answer.hasMore)
      out.stderr(`breakwater: only the first ${values.rows} rows are shown; --rows shows more`)
    return 0
  })
}

/** Rejects with an `UnusableInput`. */
async function answerTo(
  sql: string,
  values: Values<typeof options>,
  { env, out }: { readonly env: Env; readonly out: Output },
): Promise<SqlRows> {
  const limits = { timeoutMs: values.timeout, isUnbounded: values['unbounded-memory'] }
  requireSql(sql, limits)
  const deployments = values.deployments === undefined ? [] : await deploymentsIn(values.deployments)
  const gameDays = await storedGameDays(await stateFolder(values, env), out)
  return endingInOrder(async (stop, closing) => {
    // Only this user can look into the folder.
    const folder = await mkdtemp(join(tmpdir(), 'breakwater-sql-'))
    closing.push(() => rm(folder, { recursive: true, force: true }))
    const isNamed = namedIn(sql)
    const wanted = isNamed({ name: 'windows' }) ? {} : { arms: [] }
    const written = await writeTables(folder, 'parquet', [
      filled(runTables.filter(isNamed), eachRun(values, { env, out }, wanted)),
      filled(gameDayTables.filter(isNamed), gameDays),
      filled([deploymentsTable].filter(isNamed), deployments),
    ])
    const loaded = tables.map((known) => ({
      name: known.name,
      create: createTable(known),
      file: written.find(({ table }) => table === known.name)?.file ?? null,
    }))
    return askSql(folder, { tables: loaded, sql, rows: values.rows }, limits, stop)
  })
}

/**
 * Returns whether a query may read a table: other tables stay empty, because writing all takes seconds. DuckDB's functions
 * `query` and `query_table` can compute a name, and `duckdb_tables` counts rows.
 */
function namedIn(sql: string): (table: { readonly name: string }) => boolean {
  const text = sql.toLowerCase()
  return ({ name }) => text.includes(name) || /query|duckdb_/.test(text)
}

async function deploymentsIn(file: string): Promise<readonly Deployment[]> {
  const { size } = await stat(file)
  if (size > DEPLOYMENTS_BYTES)
    throw new UnusableInput(`${file}: larger than ${DEPLOYMENTS_BYTES / 1e6} MB, the limit of deployments`)
  try {
    const text = await readFile(file, 'utf8')
    return readDeployments(text)
  } catch (error) {
    throw new UnusableInput(`${file}: ${(error as Error).message}`)
  }
}

function print(
  { columns, rows, hasMore, isExplain }: SqlRows,
  { json, csv }: Values<typeof options>,
  out: Output,
) {
  const names = columns.map(({ name }) => name)
  if (json) {
    const objects = rows.map((row) => Object.fromEntries(names.map((name, at) => [name, row[at]])))
    out.stdout(JSON.stringify({ columns, rows: objects, more: hasMore }))
  } else if (csv) {
    for (const line of [names, ...rows.map((row) => row.map(flat))]) out.stdout(csvLine(line))
  } else if (isExplain) {
    // A plan is a drawing of several lines in the last column.
    for (const [, plan] of rows) for (const line of String(flat(plan ?? null)).split('\n')) out.stdout(line)
  } else {
    const cells = rows.map((row) => row.map((value) => flat(value) ?? 'null').map(shown))
    for (const line of table(names, cells, out.width ?? WIDE, out.paint)) out.stdout(line)
  }
}

/** Returns lists and objects as JSON text. */
const flat = (value: SqlValue) => (isPlain(value) ? value : JSON.stringify(value))

const isPlain = (value: SqlValue): value is Cell => value === null || typeof value !== 'object'

const shown = (value: string | number | boolean) => (typeof value === 'boolean' ? String(value) : value)
