import { type ChildProcess, spawn, type StdioOptions } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { bound } from '../../support/bound.ts'
import { until } from '../../support/until.ts'
import { descendantsOf } from './family.ts'

const running = new Set<Program>()

/** How long a program may take to say something, in milliseconds: on a machine that is held up, each takes its time to start. */
const PATIENCE_MS = 60_000

export interface ProgramOptions {
  /** Added to the test's own environment. */
  readonly env?: Readonly<Record<string, string>>
  readonly stdio?: StdioOptions
  /** The test's own working folder unless given. */
  readonly cwd?: string
  /** How many files, sockets and pipes it may have open; as many as the test itself unless given. */
  readonly openFiles?: number
}

/** How a process ended. */
export interface Ending {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
}

/** A process in a group of its own, and what it has said so far. */
export class Program {
  readonly child: ChildProcess
  readonly pid: number
  readonly ended: Promise<Ending>
  /** All of its standard output and standard error, line by line. */
  readonly lines: string[] = []

  constructor(
    args: readonly string[],
    { env = {}, stdio = ['ignore', 'pipe', 'pipe'], cwd = process.cwd(), openFiles }: ProgramOptions = {},
  ) {
    const [command, ...rest] =
      openFiles === undefined ? [process.execPath, ...args] : limited(openFiles, args)
    this.child = spawn(command, rest, {
      detached: true,
      stdio,
      cwd,
      env: bound({ ...process.env, ...env }),
    })
    this.pid = this.child.pid as number
    for (const stream of [this.child.stdout, this.child.stderr]) {
      if (stream !== null) createInterface({ input: stream }).on('line', (line) => this.lines.push(line))
    }
    this.ended = once(this.child, 'close').then(([code, signal]) => ({ code, signal }))
    running.add(this)
  }

  get isRunning(): boolean {
    return this.child.exitCode === null && this.child.signalCode === null
  }

  /** The first line that `pick` makes something of, whether it was said already or not. */
  async line<T>(what: string, pick: (line: string) => T | undefined): Promise<T> {
    let found: T | undefined
    let seen = 0
    const isSaid = () => {
      while (found === undefined && seen < this.lines.length) found = pick(this.lines[seen++] as string)
      if (found === undefined && !this.isRunning) throw new Error(`ended early: ${this.lines.join('\n')}`)
      return found !== undefined
    }
    await until(`${what}; it said: ${this.lines.join('\n')}`, isSaid, PATIENCE_MS)
    return found as T
  }

  /** Sends a signal to the process alone, not to its group. */
  signal(name: NodeJS.Signals): void {
    this.child.kill(name)
  }

  /** Ends the process at once, and all that it started. */
  async kill(): Promise<Ending> {
    running.delete(this)
    killFamily(this.pid)
    return this.ended
  }
}

/** Ends all that tests have started. */
export async function killAll(): Promise<void> {
  await Promise.all([...running].map((program) => program.kill()))
}

/** A command that runs node with so many files, and is node itself in the end. */
function limited(openFiles: number, args: readonly string[]): [string, ...string[]] {
  return ['sh', '-c', `ulimit -n ${openFiles}; exec "$0" "$@"`, process.execPath, ...args]
}

/** Kills a process, its group, and what it started in groups of their own. */
function killFamily(pid: number): void {
  for (const member of [-pid, ...descendantsOf(pid)]) {
    try {
      process.kill(member, 'SIGKILL')
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
    }
  }
}
