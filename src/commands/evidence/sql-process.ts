import { readFile } from 'node:fs/promises'
import type { DuckDBConnection, DuckDBPreparedStatement, DuckDBValueConverter, Json } from '@duckdb/node-api'
import { queryIn } from './sql-statement.ts'
import type { SqlAnswer, SqlRequest } from './sql.ts'

// The child program of `breakwater analyze`: reads a request, loads its tables, locks DuckDB, and answers one query.
// The parent limits the memory and the time. This process ends when the parent closes standard input.

/** DuckDB's own limit, below that of the operating system: some queries end with an error instead of a crash. */
const DUCKDB_MEMORY = '300MB'

let text = ''
process.stdin.setEncoding('utf8')
process.stdin.on('data', (part: string) => {
  text += part
  if (!text.endsWith('\n')) return
  const request = JSON.parse(text) as SqlRequest
  void answerTo(request)
    .catch((error: unknown): SqlAnswer => ({ kind: 'failed', message: messageOf(error) }))
    .then((answer) => process.stdout.write(JSON.stringify(answer), () => process.exit()))
})
// `process.exit` would wait for a query that a thread of DuckDB still runs.
process.stdin.on('end', () => process.kill(process.pid, 'SIGKILL'))

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error))

async function answerTo({ memoryBytes, tables, sql, rows }: SqlRequest): Promise<SqlAnswer> {
  if (memoryBytes !== null && !((await dataLimit()) <= memoryBytes)) return { kind: 'unlimited' }
  const refused: SqlAnswer = { kind: 'refused' }
  const query = queryIn(sql)
  if (query === undefined) return refused
  const duckdb = await import('@duckdb/node-api').catch(messageOf)
  if (typeof duckdb === 'string') return { kind: 'missing', message: duckdb }
  const { DuckDBInstance, JsonDuckDBValueConverter, StatementType } = duckdb
  const instance = await DuckDBInstance.create(':memory:', {
    threads: '2',
    memory_limit: DUCKDB_MEMORY,
    autoinstall_known_extensions: 'false',
    autoload_known_extensions: 'false',
    allow_community_extensions: 'false',
    allow_persistent_secrets: 'false',
  })
  const connection = await instance.connect()
  for (const { name, create, file } of tables) {
    await connection.run(create)
    if (file !== null)
      await connection.run(
        `INSERT INTO "${name}" SELECT * FROM read_parquet('${file.replaceAll("'", "''")}')`,
      )
  }
  await connection.run(`SET temp_directory = ''`)
  await connection.run('SET enable_external_access = false')
  await connection.run(`SET disabled_filesystems = 'LocalFileSystem'`)
  await connection.run('SET lock_configuration = true')

  const statement = await only(connection, sql)
  // An EXPLAIN has no type but its own, so its query is looked at as well.
  const inner = query === sql ? statement : await only(connection, query)
  if (statement === undefined || inner?.statementType !== StatementType.SELECT) return refused
  const outer = query === sql ? StatementType.SELECT : StatementType.EXPLAIN
  if (statement.statementType !== outer) return refused

  // One more row tells whether there are more than asked for.
  const reader = await statement.streamAndReadUntil(rows + 1)
  const toJson: DuckDBValueConverter<Json> = (value, type, nested) =>
    typeof value === 'bigint' ? wholeNumber(value) : JsonDuckDBValueConverter(value, type, nested)
  const found = reader.convertRows(toJson)
  const names = reader.deduplicatedColumnNames()
  return {
    kind: 'rows',
    columns: reader.columnTypes().map((type, at) => ({ name: names[at] ?? '', type: String(type) })),
    // DuckDB reads chunks of 2,048 rows.
    rows: found.slice(0, rows),
    hasMore: found.length > rows,
    isExplain: outer === StatementType.EXPLAIN,
  }
}

/** Returns the only statement of a text; undefined if there are several. Rejects with DuckDB's error. */
async function only(connection: DuckDBConnection, sql: string): Promise<DuckDBPreparedStatement | undefined> {
  const statements = await connection.extractStatements(sql)
  return statements.count === 1 ? statements.prepare(0) : undefined
}

/** Numbers of JSON are exact up to 2^53. */
const wholeNumber = (value: bigint): number | string => {
  const number = Number(value)
  return Number.isSafeInteger(number) ? number : String(value)
}

/** Returns the limit on this process's data in bytes, as Linux enforces it; infinite without a limit. */
async function dataLimit(): Promise<number> {
  const limits = await readFile('/proc/self/limits', 'utf8').catch(() => '')
  return Number(/^Max data size +(\d+) /m.exec(limits)?.[1] ?? Infinity)
}
