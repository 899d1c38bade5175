import { spawn, type ChildProcessByStdio } from 'node:child_process'
import type { Readable, Writable } from 'node:stream'
import { fileURLToPath } from 'node:url'
import type { Cancellation } from '../../mesh/cancel.ts'
import { systemClock, type Millis } from '../../mesh/clock.ts'
import { UnusableInput } from '../shared/arguments.ts'
import { queryIn } from './sql-statement.ts'

/** Limit on the memory of a query's process, in bytes. */
export const MEMORY_BYTES = 600_000_000

/** Longest answer of a query's process, in bytes: the answer lies in the memory of this process. */
const ANSWER_BYTES = 16_000_000

/** The package that answers queries; users install it. */
export const SQL_PACKAGE = { name: '@duckdb/node-api', version: '1.5.6-r.1' } as const

/** A request to the process of a query. */
export interface SqlRequest {
  /** The limit on memory that the process must find set; null: none is required. */
  readonly memoryBytes: number | null
  /** The tables with the statements that create them. `file`: Parquet; null leaves the table empty. */
  readonly tables: readonly { readonly name: string; readonly create: string; readonly file: string | null }[]
  readonly sql: string
  /** Most rows in the answer. */
  readonly rows: number
}

export type SqlValue =
  null | boolean | number | string | readonly SqlValue[] | { readonly [name: string]: SqlValue }

export interface SqlRows {
  readonly kind: 'rows'
  readonly columns: readonly { readonly name: string; readonly type: string }[]
  readonly rows: readonly (readonly SqlValue[])[]
  /** True if the query has more rows than asked for. */
  readonly hasMore: boolean
  readonly isExplain: boolean
}

export type SqlAnswer =
  | SqlRows
  /** The text is no single SELECT or EXPLAIN. */
  | { readonly kind: 'refused' }
  /** DuckDB reports an error. */
  | { readonly kind: 'failed'; readonly message: string }
  | { readonly kind: 'missing'; readonly message: string }
  /** The operating system does not limit the memory of the process. */
  | { readonly kind: 'unlimited' }

export interface SqlLimits {
  /** The process is killed this long after its start. */
  readonly timeoutMs: Millis
  /** Runs the query also where the operating system cannot limit the memory. */
  readonly isUnbounded: boolean
  readonly platform?: NodeJS.Platform
}

const MISSING = `SQL needs the package ${SQL_PACKAGE.name}, which is not installed beside Breakwater: npm install ${SQL_PACKAGE.name}@${SQL_PACKAGE.version} (with -g if Breakwater is installed globally)`

const REFUSED = 'expected exactly one SELECT, or EXPLAIN of one; PIVOT needs its values: ON column IN (…)'

const UNLIMITED =
  'this system does not limit the memory of a query, so one query could use all memory; --unbounded-memory runs it all the same'

/**
 * Throws an `UnusableInput` for a text that is no query, without the SQL package, and where the system cannot limit the
 * memory of a query.
 */
export function requireSql(sql: string, { isUnbounded, platform = process.platform }: SqlLimits): void {
  if (queryIn(sql) === undefined) throw new UnusableInput(REFUSED)
  try {
    import.meta.resolve(SQL_PACKAGE.name)
  } catch {
    throw new UnusableInput(MISSING)
  }
  if (platform !== 'linux' && !isUnbounded) throw new UnusableInput(UNLIMITED)
}

/**
 * Answers a query in a process of its own, in a folder, with nothing in its environment. On Linux the process may use
 * `MEMORY_BYTES` of memory and write no file. Rejects with an `UnusableInput`.
 */
export async function askSql(
  folder: string,
  request: Omit<SqlRequest, 'memoryBytes'>,
  limits: SqlLimits,
  stop: Cancellation,
): Promise<SqlRows> {
  const { timeoutMs, isUnbounded, platform = process.platform } = limits
  const child = started(folder, platform)
  let why: string | undefined
  const end = (reason: string) => {
    why ??= reason
    child.kill('SIGKILL')
  }
  const cancel = systemClock.after(timeoutMs, () =>
    end(`the query took longer than ${timeoutMs} ms and was stopped; --timeout allows more`),
  )
  const interrupted = () => end('the query was interrupted')
  stop.addEventListener('abort', interrupted)
  if (stop.aborted) interrupted()
  child.stdin.on('error', () => undefined)
  child.stdin.write(
    `${JSON.stringify({ ...request, memoryBytes: isUnbounded ? null : MEMORY_BYTES } satisfies SqlRequest)}\n`,
  )
  try {
    const { text, how } = await outputOf(child, () =>
      end(`the answer is longer than ${ANSWER_BYTES / 1e6} MB; select less, or lower --rows`),
    )
    if (why !== undefined) throw new UnusableInput(why)
    return rowsOf(answerIn(text, how))
  } finally {
    cancel()
    child.stdin.destroy()
  }
}

type Child = ChildProcessByStdio<Writable, Readable, Readable>

function started(folder: string, platform: NodeJS.Platform): Child {
  const program = fileURLToPath(new URL('./sql-process.js', import.meta.url))
  const node = [process.execPath, '--max-old-space-size=256', program]
  // Limits are in kB for data and in blocks for files. A process without a limit on data refuses the query itself.
  const limits = `ulimit -c 0; ulimit -f 0; ulimit -d ${Math.floor(MEMORY_BYTES / 1024)}; exec "$0" "$@"`
  const [command = '', ...args] = platform === 'linux' ? ['/bin/sh', '-c', limits, ...node] : node
  const { SystemRoot } = process.env
  return spawn(command, args, {
    cwd: folder,
    // Windows cannot start a process without this variable.
    env: { TZ: 'UTC', ...(platform === 'win32' && { SystemRoot }) },
    stdio: ['pipe', 'pipe', 'pipe'],
    windowsHide: true,
  })
}

/** Resolves to the output, and to how the process ended, once it has. Rejects if the process cannot be started. */
function outputOf(
  child: Child,
  tooLong: () => void,
): Promise<{ readonly text: string; readonly how: string }> {
  return new Promise((resolve, reject) => {
    const parts: Buffer[] = []
    let bytes = 0
    child.stdout.on('data', (part: Buffer) => {
      bytes += part.length
      if (bytes > ANSWER_BYTES) return tooLong()
      parts.push(part)
    })
    child.stderr.resume()
    child.on('error', reject)
    child.on('close', (code, signal) =>
      resolve({ text: Buffer.concat(parts).toString(), how: signal ?? `exit code ${code}` }),
    )
  })
}

/** Throws an `UnusableInput` for a process that ended without an answer. */
function answerIn(text: string, how: string): SqlAnswer {
  try {
    return JSON.parse(text) as SqlAnswer
  } catch {
    throw new UnusableInput(
      `the process of the query ended without an answer (${how}); most likely it needed more than ${MEMORY_BYTES / 1e6} MB`,
    )
  }
}

function rowsOf(answer: SqlAnswer): SqlRows {
  switch (answer.kind) {
    case 'rows':
      return answer
    case 'refused':
      throw new UnusableInput(REFUSED)
    case 'failed':
      // DuckDB's advice on memory names settings that are locked.
      throw new UnusableInput(answer.message.replace(/^(Out of Memory Error: .*)[^]*$/, '$1'))
    case 'missing':
      throw new UnusableInput(`${MISSING}\n${answer.message}`)
    case 'unlimited':
      throw new UnusableInput(UNLIMITED)
  }
}
