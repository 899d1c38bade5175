import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createWriteStream } from 'node:fs'
import { createInterface } from 'node:readline'
import { systemClock } from '../../src/mesh/clock.ts'
import { bound } from '../support/bound.ts'

/** How many milliseconds a child may take to end after SIGTERM. */
const GRACE_MS = 5_000

const running = new Set<ChildProcess>()

/** A child process that leads its own process group. */
export interface Child {
  /** Resolves with the first result of `pick` over lines of output that is not undefined. Rejects after `limitMs`. */
  line<T>(pick: (line: string) => T | undefined, limitMs: number): Promise<T>
  /** Resolves when the child has ended. Rejects after `limitMs`. */
  ended(limitMs: number): Promise<void>
}

/** Starts a child. Both output streams go to the file `log`. */
export function start(command: string, args: readonly string[], log: string): Child {
  const child = spawn(command, args, { detached: true, stdio: ['ignore', 'pipe', 'pipe'], env: bound() })
  running.add(child)
  const file = createWriteStream(log)
  child.stdout.pipe(file, { end: false })
  child.stderr.pipe(file, { end: false })

  const closed = once(child, 'close').finally(() => file.end())

  return {
    line: (pick, limitMs) =>
      new Promise((resolve, reject) => {
        createInterface({ input: child.stdout }).on('line', (line) => {
          const found = pick(line)
          if (found !== undefined) resolve(found)
        })
        closed.then(() => reject(new Error(`${command} ended too early, see ${log}`)), reject)
        rejectAfter(limitMs, reject, log)
      }),
    ended: (limitMs) =>
      new Promise((resolve, reject) => {
        closed.then(() => resolve(), reject)
        rejectAfter(limitMs, reject, log)
      }),
  }
}

function rejectAfter(limitMs: number, reject: (error: Error) => void, log: string): void {
  systemClock.after(limitMs, () => reject(new Error(`still waiting after ${limitMs} ms, see ${log}`)))
}

/** Kills every remaining child with its process group. */
export async function stopAll(): Promise<void> {
  await Promise.all([...running].map(stop))
}

async function stop(child: ChildProcess): Promise<void> {
  if (child.exitCode === null && child.signalCode === null && child.pid !== undefined) {
    const exited = once(child, 'exit')
    signalGroup(child, 'SIGTERM')
    const cancel = systemClock.after(GRACE_MS, () => signalGroup(child, 'SIGKILL'))
    await exited
    cancel()
  }
  // Kills grandchildren that outlived the child.
  signalGroup(child, 'SIGKILL')
  running.delete(child)
}

function signalGroup({ pid }: ChildProcess, signal: NodeJS.Signals): void {
  if (pid === undefined) return
  try {
    process.kill(-pid, signal)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
  }
}
