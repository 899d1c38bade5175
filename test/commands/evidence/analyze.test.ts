import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { cp, mkdir, mkdtemp, readdir, readFile, rm, symlink, truncate, writeFile } from 'node:fs/promises'
import { readFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { after, test, type TestContext } from 'node:test'
import { fileURLToPath } from 'node:url'
import { analyze } from '../../../src/commands/evidence/analyze.ts'
import { askSql, MEMORY_BYTES, requireSql, SQL_PACKAGE } from '../../../src/commands/evidence/sql.ts'
import { filled, writeTables } from '../../../src/commands/evidence/table-files.ts'
import { DELIVERY_QUERY } from '../../../src/evidence/deployments.ts'
import { indexed } from '../../evidence/runs.ts'
import { createTable } from '../../../src/evidence/table.ts'
import { gameDayTables } from '../../../src/gamedays/tables.ts'
import { runTables } from '../../../src/evidence/tables.ts'
import { Cancellation } from '../../../src/mesh/cancel.ts'
import { tableRuns } from '../../evidence/table-runs.ts'
import { withDuckdb, withoutDuckdb } from '../../support/duckdb.ts'
import { main } from '../../support/main.ts'
import { ownChildren } from '../../support/processes.ts'
import { until } from '../../support/until.ts'

const isLinux = process.platform === 'linux'

/** For tests that look at the process of a query from outside. */
const onLinux = isLinux ? withDuckdb : { skip: 'only Linux limits the memory of a query, and has /proc' }

const SECRET = 'a-secret-of-the-environment'
process.env.BREAKWATER_TOKEN = SECRET

const folder = await mkdtemp(join(tmpdir(), 'breakwater-analyze-'))
after(() => rm(folder, { recursive: true, force: true }))

const state = join(folder, 'state')
await mkdir(state)
const runs = tableRuns(40)
await indexed(state, runs)

const unbounded = isLinux ? [] : ['--unbounded-memory']

async function run(...args: string[]) {
  const lines: string[] = []
  const errors: string[] = []
  const out = { stdout: (line: string) => lines.push(line), stderr: (line: string) => errors.push(line) }
  const code = await analyze([...unbounded, '--state', state, ...args], out, {})
  return { code, lines, errors }
}

const json = async (...args: string[]) => {
  const { code, lines, errors } = await run('--json', ...args)
  assert.deepEqual([code, errors], [0, []])
  return JSON.parse(lines.join('\n')) as {
    columns: { name: string; type: string }[]
    rows: Record<string, unknown>[]
    more: boolean
  }
}

// Queries without the command: the tables are written once.
const tables = join(folder, 'tables')
const loaded = (await writeTables(tables, 'parquet', [filled(runTables, runs)])).map(({ table, file }) => ({
  name: table,
  create: createTable(runTables.find(({ name }) => name === table)!),
  file,
}))

const ask = (sql: string, { timeoutMs = 30_000, rows = 1_000, stop = new Cancellation() } = {}) =>
  askSql(tables, { tables: [loaded[0]!], sql, rows }, { timeoutMs, isUnbounded: !isLinux }, stop)

/** Resolves to the error of a query; fails if the query has an answer. */
const errorOf = (sql: string, options?: Parameters<typeof ask>[1]): Promise<string> =>
  ask(sql, options).then(
    (answer) => assert.fail(`${sql} has an answer: ${JSON.stringify(answer).slice(0, 300)}`),
    (error: unknown) => (error as Error).message,
  )

test('a query answers in JSON, with whole numbers, nulls and times', withDuckdb, async () => {
  const { columns, rows, more } = await json(
    'SELECT run_id, run_at, host_memory_bytes, share, gateway, host_container FROM runs ORDER BY run_id LIMIT 2',
  )
  assert.deepEqual(
    columns.map(({ type }) => type),
    ['VARCHAR', 'TIMESTAMP', 'BIGINT', 'DOUBLE', 'VARCHAR', 'BOOLEAN'],
  )
  assert.deepEqual(rows, [
    {
      run_id: 'run-000000',
      run_at: '2026-03-01 00:00:00',
      host_memory_bytes: 64 * 1024 ** 3,
      share: 0.5,
      gateway: 'gateway-1',
      host_container: true,
    },
    {
      run_id: 'run-000001',
      run_at: '2026-03-01 00:10:00',
      host_memory_bytes: 64 * 1024 ** 3,
      share: null,
      gateway: null,
      host_container: false,
    },
  ])
  assert.equal(more, false)
})

test('numbers that JSON does not hold exactly are texts', withDuckdb, async () => {
  const { rows } = await json(
    `SELECT 9007199254740993 AS big, 'NaN'::DOUBLE AS nan, '-inf'::DOUBLE AS infinite, [1, NULL] AS list,
      {'a': 18446744073709551615::UBIGINT} AS struct, 1.50 AS "decimal", sum(1) AS total, 1 AS a, 2 AS a`,
  )
  assert.deepEqual(rows, [
    {
      big: '9007199254740993',
      nan: 'NaN',
      infinite: '-Infinity',
      list: [1, null],
      struct: { a: '18446744073709551615' },
      decimal: '1.50',
      total: 1,
      a: 1,
      'a:1': 2,
    },
  ])
})

test('a query answers as a table, as CSV, and as a plan', withDuckdb, async () => {
  const grouped = `SELECT kind, count(*) AS n, any_value(gateway) AS gateway, 'a,"b"' AS x
    FROM runs GROUP BY kind ORDER BY kind`
  assert.deepEqual((await run(grouped)).lines, [
    'kind         n  gateway    x',
    'comparison  20  gateway-1  a,"b"',
    'scenario    20  null       a,"b"',
  ])
  assert.deepEqual((await run('--csv', grouped)).lines, [
    'kind,n,gateway,x',
    'comparison,20,gateway-1,"a,""b"""',
    'scenario,20,,"a,""b"""',
  ])
  assert.match((await run('EXPLAIN ANALYZE SELECT count(*) FROM windows')).lines.join('\n'), /windows/)
  assert.match((await run('EXPLAIN (FORMAT JSON) SELECT 1')).lines.join('\n'), /"name"/)
})

test('the tables join, and are listed and described', withDuckdb, async () => {
  assert.deepEqual(
    (await json('SHOW TABLES')).rows.map(({ name }) => name),
    [...[...runTables, ...gameDayTables].map(({ name }) => name), 'deployments'].sort(),
  )
  assert.equal((await json('DESCRIBE runs')).rows.length, runTables[0]!.columns.length)
  const { rows } = await json(
    `/* the slowest arms */ -- in order
    SELECT arm, round(max(p99_ms), 3) AS p99, count(*) AS n FROM windows JOIN runs USING (run_id)
    WHERE kind = 'comparison' AND json_extract_string(targets, '$[0].server') = 'files' GROUP BY arm ORDER BY arm;`,
  )
  assert.deepEqual(
    rows.map(({ arm, n }) => [arm, n]),
    [
      ['control', 40],
      ['treatment', 40],
    ],
  )
})

for (const sql of [
  'SELECT count(*) AS n FROM "RUNS"',
  "SELECT count(*) AS n FROM query_table('ru' || 'ns')",
  "SELECT estimated_size AS n FROM duckdb_tables() WHERE starts_with(table_name, 'ru')",
])
  test(`a query finds its rows, however the query names the table: ${sql}`, withDuckdb, async () => {
    assert.deepEqual((await json(sql)).rows, [{ n: runs.length }])
  })

test('rows are cut to the cap, and the user learns of it', withDuckdb, async () => {
  const { code, lines, errors } = await run('--rows', '3', '--csv', 'SELECT range FROM range(10000)')
  assert.deepEqual([code, lines], [0, ['range', '0', '1', '2']])
  assert.deepEqual(errors, ['breakwater: only the first 3 rows are shown; --rows shows more'])
  assert.equal((await run('--csv', 'SELECT range FROM range(10000)')).lines.length, 1 + 1_000)
  const whole = await json('--rows', '3000', 'SELECT range FROM range(3000)')
  assert.deepEqual([whole.rows.length, whole.more], [3_000, false])
})

test('a wrong query gives the error of DuckDB, and exit code 1', withDuckdb, async () => {
  assert.match((await run('DROP TABLE runs')).errors[0] ?? '', /expected exactly one SELECT/)
  const { code, errors } = await run('SELECT nothing FROM runs')
  assert.equal(code, 1)
  assert.match(errors.join('\n'), /Binder Error: Referenced column "nothing" not found/)
  assert.equal((await run('--json', '--csv', 'SELECT 1')).code, 2)
  assert.equal((await run()).code, 2)
})

test('the delivery figures come from the deployments of a CI system', withDuckdb, async () => {
  const file = join(folder, 'deployments.csv')
  const at = (day: number, hour: number) => new Date(Date.UTC(2026, 2, day, hour)).toISOString()
  const rows = [
    // Lead times of 2, 4 and 6 hours; one of three deployments caused an incident, restored after 3 hours.
    ['d1', 'shop', 'production', at(1, 9), at(1, 10), 'success', 'c1', at(1, 8), 'false', ''],
    ['d2', 'shop', 'production', at(3, 9), at(3, 10), 'success', 'c2', at(3, 6), 'true', at(3, 13)],
    ['d3', 'shop', 'production', at(6, 9), at(6, 10), 'success', 'c3', at(6, 4), 'false', ''],
    ['d4', 'shop', 'production', at(6, 11), at(6, 12), 'failure', 'c4', at(6, 4), '', ''],
    ['d5', 'shop', 'staging', at(6, 9), at(6, 10), 'success', 'c3', at(6, 4), 'true', at(6, 12)],
    ['d6', 'till', 'production', at(2, 9), at(2, 10), 'success', 'c5', '', '', ''],
  ]
  const head =
    'id,service,environment,started_at,finished_at,status,commit,commit_at,caused_incident,restored_at'
  await writeFile(file, [head, ...rows.map((row) => row.join(','))].join('\n'))
  const { rows: figures } = await json('--deployments', file, DELIVERY_QUERY)
  assert.deepEqual(figures, [
    {
      service: 'shop',
      deployments_a_day: 0.5,
      lead_time_hours: 4,
      change_failure_rate: 1 / 3,
      restore_hours: 3,
    },
    {
      service: 'till',
      deployments_a_day: 1,
      lead_time_hours: null,
      change_failure_rate: null,
      restore_hours: null,
    },
  ])
  assert.deepEqual((await json(DELIVERY_QUERY)).rows, [])
  const large = join(folder, 'large.json')
  await writeFile(large, '')
  await truncate(large, 70_000_000)
  assert.deepEqual((await run('--deployments', large, 'SELECT 1')).errors, [
    `breakwater: ${large}: larger than 64 MB, the limit of deployments`,
  ])
  await writeFile(file, '[{"id": 1}]')
  const { code, errors } = await run('--deployments', file, 'SELECT 1')
  assert.equal(code, 1)
  assert.match(errors[0] ?? '', /deployments.csv: row 1, id: /)
})

const outside = join(folder, 'outside.csv')
await writeFile(outside, `secret\n${SECRET}\n`)
const target = join(folder, 'written')

/** Attacks by the error that they meet. The first group is refused before it runs. */
const attacks: readonly (readonly [error: RegExp, sql: readonly string[]])[] = [
  [
    /^expected exactly one SELECT/,
    [
      '',
      ';',
      '-- nothing',
      'SELECT 1; SELECT 2',
      `SELECT 1 /* ; */; COPY runs TO '${target}'`,
      `SELECT 1 -- harmless\n; COPY runs TO '${target}'`,
      `SELECT '--'; DROP TABLE runs --'`,
      `SELECT ';' AS "a;b"; DROP TABLE runs`,
      'SELECT $$;$$; DROP TABLE runs',
      "SELECT E'\\'; SELECT 2 --'; SELECT 3",
      `COPY runs TO '${target}'`,
      `COPY (SELECT 1) TO '${target}' (FORMAT parquet)`,
      `COPY runs FROM '${outside}'`,
      `EXPORT DATABASE '${target}'`,
      `IMPORT DATABASE '${target}'`,
      `ATTACH '${target}' AS other`,
      'DETACH memory',
      'INSTALL httpfs',
      'LOAD httpfs',
      'SET lock_configuration = false',
      'SET enable_external_access = true',
      'SET VARIABLE a = 1',
      'RESET lock_configuration',
      'PRAGMA version',
      "PRAGMA enable_profiling = 'json'",
      `PRAGMA import_database('${target}')`,
      '/* a /* nested */ comment */ PRAGMA version',
      'PREPARE a AS SELECT 1',
      'EXECUTE a',
      'CALL duckdb_settings()',
      'CHECKPOINT',
      'VACUUM',
      'BEGIN',
      'CREATE TABLE t (a INT)',
      "CREATE SECRET s (TYPE s3, KEY_ID 'a')",
      'CREATE MACRO f() AS 1',
      'INSERT INTO runs SELECT * FROM runs',
      'UPDATE runs SET name = 1',
      'DELETE FROM runs',
      'DROP TABLE runs',
      'USE memory',
      'PIVOT runs ON kind USING count(*)',
      `EXPLAIN ANALYZE COPY (SELECT 1) TO '${target}'`,
      `EXPLAIN (ANALYZE) COPY (SELECT 1) TO '${target}'`,
      `EXPLAIN /* */ ANALYZE COPY (SELECT 1) TO '${target}'`,
      `EXPLAIN ANALYZE /* SELECT */ COPY (SELECT 1) TO '${target}'`,
      'EXPLAIN ANALYZE SET threads = 1',
      'EXPLAIN ANALYZE DROP TABLE runs',
      'EXPLAIN ANALYZE LOAD httpfs',
      'EXPLAIN SELECT 1; DROP TABLE runs',
      // A Cyrillic letter, and a NUL.
      'ЅELECT 1',
      'SELECT 1 \0; DROP TABLE runs',
    ],
  ],
  [
    /Permission Error|disabled by configuration|File system .*disabled/,
    [
      `SELECT * FROM read_csv('${outside}')`,
      `SELECT * FROM read_text('${outside}')`,
      `SELECT * FROM read_blob('${outside}')`,
      `SELECT * FROM read_json('${outside}')`,
      `SELECT * FROM read_parquet('${join(tables, 'runs.parquet')}')`,
      `SELECT * FROM parquet_metadata('${join(tables, 'runs.parquet')}')`,
      `SELECT * FROM '${outside}'`,
      `SELECT * FROM "${outside}"`,
      `SELECT * FROM glob('/*')`,
      `SELECT * FROM read_text('/proc/self/environ')`,
      `SELECT * FROM sniff_csv('${outside}')`,
      `FROM query('SELECT * FROM read_text(''${outside}'')')`,
      `WITH x AS (SELECT * FROM read_csv('${outside}')) SELECT * FROM x`,
      `SELECT (SELECT content FROM read_text('${outside}'))`,
    ],
  ],
  [
    /Error/,
    [
      "SELECT getenv('BREAKWATER_TOKEN')",
      "SELECT * FROM read_text('https://example.invalid/')",
      "SELECT * FROM sqlite_scan('a', 'b')",
      `FROM query('COPY runs TO ''${target}''')`,
      `FROM query('SELECT 1; DROP TABLE runs')`,
      `WITH x AS (COPY runs TO '${target}') SELECT * FROM x`,
      'WITH x AS (DELETE FROM runs RETURNING *) SELECT * FROM x',
      "SELECT nextval('s')",
      'SELECT $1',
      "SELECT 'a",
      'SELECT \u2018a\u2019; x',
      `SELECT * FROM load_aws_credentials()`,
      '('.repeat(5_000),
    ],
  ],
]

test('an answer that is too long for the memory of the command is dropped', withDuckdb, async () => {
  assert.match(
    await errorOf("SELECT repeat('x', 1000000) FROM range(30)"),
    /^the answer is longer than 16 MB/,
  )
})

test('attacks on files, settings and other tables are refused', withDuckdb, async () => {
  const all = attacks.flatMap(([error, texts]) => texts.map((sql) => ({ error, sql })))
  const asked = async () => {
    for (let next = all.pop(); next !== undefined; next = all.pop())
      assert.match(await errorOf(next.sql), next.error, next.sql)
  }
  await Promise.all([asked(), asked(), asked()])
  assert.deepEqual(
    (await readdir(folder)).filter((name) => name === 'written'),
    [],
  )
  assert.deepEqual((await readdir(tables)).sort(), runTables.map(({ name }) => `${name}.parquet`).sort())
})

test('settings and secrets that a query can read hold nothing of this process', withDuckdb, async () => {
  for (const sql of ['FROM duckdb_settings()', 'FROM duckdb_secrets()', 'FROM duckdb_logs()'])
    assert.doesNotMatch(JSON.stringify(await ask(sql)), new RegExp(SECRET), sql)
  const { rows } = await ask(
    `SELECT name, value FROM duckdb_settings() WHERE name IN ('enable_external_access', 'lock_configuration')
    ORDER BY name`,
  )
  assert.deepEqual(rows, [
    ['enable_external_access', 'false'],
    ['lock_configuration', 'true'],
  ])
})

/** Queries that take all memory or time unless somebody stops them. */
const hungry = [
  "SELECT repeat('x', 1000000000)",
  "SELECT length(repeat(repeat('x', 1000000), 2000))",
  "SELECT repeat('x', 100000000) FROM range(100)",
  "SELECT sum(length(repeat('x', range::INT + 200000000))) FROM range(100)",
  'SELECT range(1000000000)',
  'SELECT list(range) FROM range(1000000000)',
  'SELECT unnest(range(1000000000)) AS a ORDER BY hash(a)',
  "SELECT string_agg(repeat('x', 1000), '') FROM range(10000000)",
  "SELECT lpad('x', 2000000000, 'y')",
  'SELECT count(*) FROM generate_series(1, 100000000000)',
  'WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT max(n) FROM r',
  "WITH RECURSIVE r(s) AS (SELECT 'x' UNION ALL SELECT s || s FROM r) SELECT max(length(s)) FROM r",
  'SELECT DISTINCT a.range * b.range FROM range(100000) a, range(100000) b',
  "SELECT to_json(list(repeat('x', 1000))) FROM range(10000000)",
  "SELECT repeat('x', 10000000) FROM range(2000)",
]

/** The highest resident memory of a process so far, in bytes; 0 once it has ended. */
function peakOf(pid: number): number {
  try {
    return 1024 * Number(/^VmHWM:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0)
  } catch {
    return 0
  }
}

for (const sql of hungry)
  test(`a query is stopped before it takes all memory or time: ${sql}`, onLinux, async (t) => {
    const before = new Set(ownChildren())
    const began = performance.now()
    let message: string | undefined
    const ended = errorOf(sql, { timeoutMs: 3_000 }).then((text) => (message = text))
    let peak = 0
    await until('the query has ended', () => {
      for (const pid of ownChildren()) if (!before.has(pid)) peak = Math.max(peak, peakOf(pid))
      return message !== undefined
    })
    await ended
    t.diagnostic(`${(performance.now() - began).toFixed(0)} ms, ${(peak / 1e6).toFixed(0)} MB: ${message}`)
    assert.match(
      message ?? '',
      /Error|^the query took longer|^the process of the query ended|^the answer is longer/,
    )
    assert.ok(peak <= 700e6, `${peak / 1e6} MB`)
    assert.deepEqual(
      ownChildren().filter((pid) => !before.has(pid)),
      [],
    )
  })

test('the process of a query has no variables of ours, and may write no file', onLinux, async () => {
  const before = new Set(ownChildren())
  const stop = new Cancellation()
  const ended = errorOf('SELECT count(*) FROM range(100000000000)', { stop })
  let found = { variables: [''], limits: '' }
  await until('the process of the query is Node', () => {
    const pid = ownChildren().find((one) => !before.has(one))
    if (pid === undefined || !readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('sql-process'))
      return false
    if (readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('ulimit')) return false
    const variables = readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0')
    found = {
      variables: variables.map((variable) => variable.replace(/=.*/s, '')),
      limits: readFileSync(`/proc/${pid}/limits`, 'utf8'),
    }
    return true
  })
  stop.abort('signal')
  assert.equal(await ended, 'the query was interrupted')
  // A shell may set the last three.
  const allowed = ['TZ', '', 'PWD', 'OLDPWD', 'SHLVL', '_']
  assert.deepEqual(
    found.variables.filter((name) => !allowed.includes(name)),
    [],
  )
  const [, soft = NaN, hard = NaN] = (/Max data size +(\d+) +(\d+)/.exec(found.limits) ?? []).map(Number)
  assert.ok(soft <= MEMORY_BYTES && hard <= MEMORY_BYTES, found.limits)
  assert.match(found.limits, /Max file size +0 +0/)
  assert.match(found.limits, /Max core file size +0 +0/)
})

test('the process of a query ends with its parent', onLinux, async () => {
  const script = `
    import { askSql } from '${new URL('../../../src/commands/evidence/sql.js', import.meta.url).href}'
    import { Cancellation } from '${new URL('../../../src/mesh/cancel.js', import.meta.url).href}'
    void askSql('/', { tables: [], sql: 'SELECT count(*) FROM range(100000000000)', rows: 1 },
      { timeoutMs: 600000, isUnbounded: false }, new Cancellation())`
  const parent = execFile(process.execPath, ['--input-type=module', '-e', script])
  const childrenOf = (pid: number) => {
    try {
      return readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8')
        .trim()
        .split(' ')
        .filter(Boolean)
        .map(Number)
    } catch {
      return []
    }
  }
  let child: number | undefined
  await until('the query runs', () => {
    child = childrenOf(parent.pid!).find((pid) => peakOf(pid) > 60e6)
    return child !== undefined
  })
  parent.kill('SIGKILL')
  await until('the query has ended', () => peakOf(child!) === 0)
})

test('a system without a limit on memory is refused, unless the user asks for it', withDuckdb, async () => {
  const refused = { message: /^this system does not limit the memory of a query.*--unbounded-memory/ }
  for (const platform of ['darwin', 'win32'] as const) {
    assert.throws(() => requireSql('SELECT 1', { timeoutMs: 1, isUnbounded: false, platform }), refused)
    assert.doesNotThrow(() => requireSql('SELECT 1', { timeoutMs: 1, isUnbounded: true, platform }))
  }
  // A process that is started without the limit notices so itself.
  const request = { tables: [], sql: 'SELECT 1 AS a', rows: 1 }
  const limits = { timeoutMs: 30_000, platform: 'darwin' as const }
  await assert.rejects(
    askSql(tables, request, { ...limits, isUnbounded: false }, new Cancellation()),
    refused,
  )
  const { rows } = await askSql(tables, request, { ...limits, isUnbounded: true }, new Cancellation())
  assert.deepEqual(rows, [[1]])
})

interface Ran {
  readonly code: number
  readonly stdout: string
  readonly stderr: string
}

const node = (args: readonly string[]) =>
  new Promise<Ran>((resolve) => {
    execFile(process.execPath, args, { maxBuffer: 2 ** 26 }, (error, stdout, stderr) =>
      resolve({ code: Number(error?.code ?? 0), stdout, stderr }),
    )
  })

test('without DuckDB, the command says how to install it', async () => {
  const copy = join(folder, 'copy')
  await cp(dirname(main), join(copy, 'dist'), { recursive: true })
  await writeFile(join(copy, 'package.json'), '{"type": "module"}')
  const modules = fileURLToPath(new URL('../../../../node_modules', import.meta.url))
  await mkdir(join(copy, 'node_modules'))
  for (const name of await readdir(modules))
    if (name !== '@duckdb') await symlink(join(modules, name), join(copy, 'node_modules', name))
  const { code, stderr } = await node([
    join(copy, 'dist', 'main.js'),
    'analyze',
    '--state',
    state,
    'SELECT 1',
  ])
  assert.equal(code, 1)
  assert.equal(
    stderr,
    `breakwater: SQL needs the package @duckdb/node-api, which is not installed beside Breakwater: npm install @duckdb/node-api@${SQL_PACKAGE.version} (with -g if Breakwater is installed globally)\n`,
  )
})

test('the version of DuckDB in the sentence is the one of package.json', async () => {
  const text = await readFile(new URL('../../../../package.json', import.meta.url), 'utf8')
  const { peerDependencies } = JSON.parse(text) as { peerDependencies: Record<string, string> }
  assert.equal(peerDependencies[SQL_PACKAGE.name], SQL_PACKAGE.version)
})

/** Prints the highest resident memory of a process at its end, in kB, and its seconds of CPU. */
const PEAK = `data:text/javascript,process.on('exit',()=>{
  const { maxRSS, userCPUTime } = process.resourceUsage();
  console.error('PEAK ' + maxRSS + ' CPU ' + userCPUTime / 1e6) })`

function told(t: TestContext, what: string, began: number, { stderr }: Ran): void {
  const [, peak, cpu] = (/PEAK (\d+) CPU (.*)/.exec(stderr) ?? []).map(Number)
  const seconds = (performance.now() - began) / 1e3
  t.diagnostic(`${what}: ${seconds.toFixed(1)} s, ${cpu?.toFixed(1)} s of CPU, ${(peak ?? NaN) / 1e3} MB`)
}

test('ten thousand runs are exported and asked in bounded memory', async (t) => {
  const many = join(folder, 'many')
  await mkdir(many)
  await indexed(many, tableRuns(10_000))
  const built = (path: string) => new URL(`../../../${path}`, import.meta.url).href

  let began = performance.now()
  // The writer holds few rows, so its memory does not depend on the number of runs.
  const streamed = await node([
    ...['--import', PEAK, '--input-type=module', '-e'],
    `import { filled, writeTables } from '${built('src/commands/evidence/table-files.js')}'
    import { runTables } from '${built('src/evidence/tables.js')}'
    import { tableRun } from '${built('test/evidence/table-runs.js')}'
    function* runs() { for (let n = 0; n < 10_000; n++) yield tableRun(n) }
    await writeTables('${join(folder, 'streamed')}', 'parquet', [filled(runTables, runs())])`,
  ])
  told(t, 'tables of 10,000 runs that arrive one by one', began, streamed)
  assert.equal(streamed.code, 0, streamed.stderr)
  assert.ok(Number(/PEAK (\d+)/.exec(streamed.stderr)?.[1]) <= 200_000, streamed.stderr)

  began = performance.now()
  const exported = await node([
    ...['--import', PEAK, '--input-type=module', '-e'],
    `import { exportRuns } from '${built('src/commands/evidence/export.js')}'
    const out = { stdout: console.log, stderr: console.error }
    process.exitCode = await exportRuns(['--state', '${many}', '--parquet', '${join(folder, 'all')}'], out, {})`,
  ])
  told(t, 'export of the index', began, exported)
  assert.equal(exported.code, 0, exported.stderr)

  if (withoutDuckdb !== undefined) return t.diagnostic(withoutDuckdb)
  began = performance.now()
  const asked = await node([
    ...['--import', PEAK, main, 'analyze', ...unbounded, '--timeout', '60s', '--state', many, '--csv'],
    'SELECT kind, arm, count(*), sum(windows.calls) FROM windows JOIN runs USING (run_id) GROUP BY ALL ORDER BY ALL',
  ])
  told(t, 'a question with a group', began, asked)
  assert.equal(asked.code, 0, asked.stderr)
  assert.equal(
    asked.stdout,
    `kind,arm,count_star(),sum(windows.calls)
comparison,control,10000,4000000
comparison,treatment,10000,4000000
scenario,control,10000,4000000
scenario,treatment,10000,4000000
`,
  )
})
