import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, mkdirSync, openSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { systemClock } from '../../src/mesh/clock.ts'
import { bound } from '../support/bound.ts'
import { type Finished, type Left, RESULTS } from './reporter.ts'

/** Time limit of a file, in milliseconds. A longer file counts as hanging. */
const LIMIT_MS = 600_000

/** Largest number of characters shown of a failed file's output, counted from its end. */
const SHOWN_CHARS = 30_000

const reporter = fileURLToPath(new URL('./reporter.js', import.meta.url))

/** The folder of the files' outputs; outputs of the last run stay. */
const outputs = fileURLToPath(new URL('../../test-output/', import.meta.url))
mkdirSync(outputs, { recursive: true })

/** Compiled code of programs, which newer release lines of Node reuse: each start takes a fifth less CPU. */
const compiled = fileURLToPath(new URL('../../compile-cache/', import.meta.url))

/** The end of a file of tests. */
export interface Ending {
  readonly tests: readonly Finished[]
  /** Null when all tests passed and no process was left behind. */
  readonly failure: string | null
  readonly tookMs: number
}

const running = new Set<ChildProcess>()

/** Sends a signal to all files that run. */
export function signalAll(name: NodeJS.Signals): void {
  for (const child of running) child.kill(name)
}

/** Runs a file in a process of its own. A file without tests fails, and so does a file that leaves processes behind. */
export async function runFile(path: string, name: string): Promise<Ending> {
  const stem = join(outputs, name.replaceAll('/', '.'))
  const [log, results] = [`${stem}.log`, `${stem}.jsonl`]
  const output = openSync(log, 'w')
  writeFileSync(results, '')
  const began = systemClock.now()
  const child = spawn(
    process.execPath,
    [
      ...['--test-reporter=spec', '--test-reporter-destination=stdout'],
      ...[`--test-reporter=${reporter}`, `--test-reporter-destination=${results}`],
      path,
    ],
    // The output goes to a file, because a process left behind would hold a pipe open.
    {
      stdio: ['ignore', output, output],
      env: bound({ NODE_COMPILE_CACHE: compiled, ...process.env, [RESULTS]: results }),
    },
  )
  closeSync(output)
  running.add(child)
  let hangs = false
  const cancel = systemClock.after(LIMIT_MS, () => {
    hangs = true
    child.kill('SIGKILL')
  })
  const [code, signal] = (await once(child, 'exit')) as [number | null, NodeJS.Signals | null]
  cancel()
  running.delete(child)

  const lines = readFileSync(results, 'utf8')
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Finished | Left)
  const tests = lines.filter((line) => 'passed' in line)
  const failures = [
    ...(hangs ? [`hangs: ended after ${LIMIT_MS / 1000} s`] : []),
    ...(code !== 0 && !hangs ? [`ended with ${signal ?? `code ${code}`}`] : []),
    ...(tests.length === 0 ? ['has run no test'] : []),
    ...lines.flatMap((line) => ('left' in line ? [`leaves a process behind: ${line.left}`] : [])),
  ]
  return {
    tests,
    failure:
      failures.length === 0 ? null : `${failures.join('\n')}\n${failedTests(readFileSync(log, 'utf8'))}`,
    tookMs: systemClock.now() - began,
  }
}

/** Returns the part of an output about failed tests, or its end if no test failed. */
function failedTests(output: string): string {
  return output.slice(Math.max(0, output.lastIndexOf('✖ failing tests:'))).slice(-SHOWN_CHARS)
}
