import { appendFileSync, existsSync, readdirSync, readFileSync } from 'node:fs'
import type { TestEvent } from 'node:test/reporters'

// Node's test runner loads this module into the process of the tests. The module sends the results to the runner: a
// line of JSON for each test and for each process left behind.

/** The environment variable with the path of the lines. Descendants inherit the variable, which identifies them. */
export const RESULTS = 'BREAKWATER_TEST_RESULTS'

/** Longest time for started processes to end after the tests, in milliseconds. */
const GRACE_MS = 5_000

const POLL_MS = 50

/** One finished test. */
export interface Finished {
  /** Absolute path of the file that declares the test. */
  readonly file: string
  readonly name: string
  readonly passed: boolean
  /** The reason of a skipped test; empty when the test gives none. */
  readonly skipped?: string
}

/** A process that outlives all tests. */
export interface Left {
  /** Process id and command line. */
  readonly left: string
}

/** Writes a line for each finished test; suites are left out, because their tests count. */
async function* reporter(events: AsyncIterable<TestEvent>): AsyncGenerator<string> {
  const results = process.env[RESULTS]
  if (results !== undefined && existsSync('/proc/self/environ')) process.once('exit', () => tellLeft(results))
  for await (const { type, data } of events) {
    if ((type !== 'test:pass' && type !== 'test:fail') || data.details.type === 'suite') continue
    const { file = '', name, skip } = data
    const finished: Finished = {
      file,
      name,
      passed: type === 'test:pass',
      ...(skip !== undefined && skip !== false && { skipped: skip === true ? '' : skip }),
    }
    yield `${JSON.stringify(finished)}\n`
  }
}

export { reporter as default }

/** Reports processes left behind, and ends them. Runs first, because processes with our mark end after this process. */
function tellLeft(results: string): void {
  // Waits synchronously, because nothing asynchronous runs at the exit of a process.
  const pause = new Int32Array(new SharedArrayBuffer(4))
  let left = descendants(results)
  for (let waited = 0; left.length > 0 && waited < GRACE_MS; waited += POLL_MS) {
    Atomics.wait(pause, 0, 0, POLL_MS)
    left = descendants(results)
  }
  for (const { pid, command } of left) {
    appendFileSync(results, `${JSON.stringify({ left: `${pid} ${command}` } satisfies Left)}\n`)
    try {
      process.kill(pid, 'SIGKILL')
    } catch {
      // The process has ended meanwhile.
    }
  }
}

/** Returns the processes with our variable. */
function descendants(results: string): { pid: number; command: string }[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name) && name !== String(process.pid))
    .flatMap((pid) => {
      try {
        const variables = readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0')
        if (!variables.includes(`${RESULTS}=${results}`)) return []
        const command = readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ').trim()
        return [{ pid: Number(pid), command }]
      } catch {
        // The process has ended meanwhile, or belongs to another user.
        return []
      }
    })
}
