import { type ChildProcess, spawn, type StdioOptions } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { bound } from '../../support/bound.ts'
import { until } from '../../support/until.ts'
import { descendantsOf } from './family.ts'

const running = new Set<Program>()

/** Longest wait for a line of a program, in milliseconds: on a stalled machine every start takes time. */
const PATIENCE_MS = 60_000

export interface ProgramOptions {
  /** Added to the test's own environment. */
  readonly env?: Readonly<Record<string, string>>
  readonly stdio?: StdioOptions
  /** Default: the test's own working folder. */
  readonly cwd?: string
  /** Limit of open files, sockets and pipes; default: the test's own limit. */
  readonly openFiles?: number
}

export interface Ending {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
}

/** A process in its own group, and its output so far. */
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

  /** Returns the first value `pick` finds in a line, past or future. */
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

  /** Signals the process alone, not its group. */
  signal(name: NodeJS.Signals): void {
    this.child.kill(name)
  }

  /** Kills the process and all its descendants at once. */
  async kill(): Promise<Ending> {
    running.delete(this)
    killFamily(this.pid)
    return this.ended
  }
}

export async function killAll(): Promise<void> {
  await Promise.all([...running].map((program) => program.kill()))
}

/** Returns a command that runs node with this limit of open files; `exec` keeps the pid. */
function limited(openFiles: number, args: readonly string[]): [string, ...string[]] {
  return ['sh', '-c', `ulimit -n ${openFiles}; exec "$0" "$@"`, process.execPath, ...args]
}

/** Kills a process, its group, and its descendants in other groups. */
function killFamily(pid: number): void {
  for (const member of [-pid, ...descendantsOf(pid)]) {
    try {
      process.kill(member, 'SIGKILL')
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
    }
  }
}
