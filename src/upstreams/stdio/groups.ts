import { spawn, type ChildProcess } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import type { Writable } from 'node:stream'
import { fileURLToPath } from 'node:url'
import type { Clock, Millis } from '../../mesh/clock.ts'
import type { Log } from '../../telemetry/log.ts'
import { STARTED_BY } from './family.ts'

/** Leaders of the process groups that run under ours, and the number in the mark of each. */
const leaders = new Map<ChildProcess, number>()

/** The first part of the marks of all that we start; another one for each supervisor that has ended in order. */
let gateway = randomUUID()

/** How often a supervisor is started in place of one that was ended; past it there is none. */
const MAX_STARTS = 5

/** How long the supervisor may take for what is left when all servers are ended, in milliseconds. */
const LONGEST_END_MS: Millis = 2_500

const program = fileURLToPath(new URL('./supervisor.js', import.meta.url))

/** The process that ends our servers when ours is killed; see `supervisor.ts`. One for all servers, from the first on. */
let supervisor: ChildProcess | undefined
let starts = 0
let count = 0

/** A place for a program that is about to be started. */
export interface Place {
  /** Variables that the program has to be started with. */
  readonly env: Readonly<Record<string, string>>
  /** The program runs, and leads a group of its own. */
  readonly taken: (leader: ChildProcess) => void
}

/**
 * Sees to it that a group of processes does not outlive ours, however ours ends. To be asked for before the program is
 * started: were we killed in between, it would still be found by its mark.
 */
export function placeUnderUs(log: Log): Place {
  if (supervisor === undefined) startSupervisor(log)
  const number = ++count
  const mark = `${gateway}.${number}`
  const outer = process.env[STARTED_BY]
  return {
    env: { [STARTED_BY]: outer === undefined ? mark : `${outer} ${mark}` },
    taken: (leader) => {
      if (leaders.size === 0) process.on('exit', killAll)
      leaders.set(leader, number)
      tell(`+ ${number} ${leader.pid}`)
      leader.once('close', () => {
        leaders.delete(leader)
        tell(`- ${number}`)
        if (leaders.size === 0) process.off('exit', killAll)
      })
    },
  }
}

/** A program is about to be ended: while it lives, more of what it has started can be found. */
export function aboutToEnd(leader: ChildProcess): void {
  const number = leaders.get(leader)
  if (number !== undefined) tell(`? ${number}`)
}

/** Never throws: servers run without it, too. */
function startSupervisor(log: Log): void {
  if (process.platform === 'win32' || starts === MAX_STARTS) return
  starts++
  // A session of its own, out of reach of Ctrl-C; and nothing of our environment, which may hold secrets.
  let started: ChildProcess
  const warn = (why: string) => {
    const message = `the supervisor ${why}: servers may outlive the gateway if it is killed`
    log.warn({ starts, maxStarts: MAX_STARTS }, message)
  }
  try {
    started = spawn(process.execPath, ['--max-semi-space-size=1', program, gateway], {
      cwd: '/',
      env: {},
      detached: true,
      stdio: ['pipe', 'ignore', 'ignore'],
    })
  } catch (error) {
    return warn(`cannot be started (${(error as Error).message})`)
  }
  supervisor = started
  const lost = (why: string) => {
    if (supervisor !== started) return
    supervisor = undefined
    warn(why)
    if (leaders.size > 0 && started.pid !== undefined) startSupervisor(log)
  }
  started.once('error', ({ message }) => lost(`cannot be started (${message})`))
  started.once('exit', (code, signal) => lost(`ended (${signal ?? `exit code ${code}`})`))
  // Out of file descriptors, it has no pipes either, and says so later.
  const input = started.stdin as (Writable & { unref(): void }) | null | undefined
  // Its end tells of itself.
  input?.on('error', () => undefined)
  input?.unref()
  started.unref()
  for (const [leader, number] of leaders) tell(`+ ${number} ${leader.pid}`)
}

/**
 * Ends the supervisor, once there is nothing left that it is for, and what servers have left behind outside of their groups.
 * Resolves when both are gone, or when the supervisor is given up after `LONGEST_END_MS`.
 */
export function endSupervisor(clock: Clock): Promise<void> {
  const ending = supervisor
  if (ending === undefined || leaders.size > 0) return Promise.resolve()
  supervisor = undefined
  starts = 0
  gateway = randomUUID()
  return new Promise((resolve) => {
    const cancel = clock.after(LONGEST_END_MS, () => {
      ending.unref()
      resolve()
    })
    ending.ref()
    ending.once('exit', () => {
      cancel()
      resolve()
    })
    ending.stdin?.end()
  })
}

function tell(line: string): void {
  supervisor?.stdin?.write(`${line}\n`)
}

function killAll(): void {
  for (const { pid } of leaders.keys()) {
    try {
      process.kill(-(pid as number), 'SIGKILL')
    } catch {
      // Gone already; whatever else it is must not spare the others.
      continue
    }
  }
}
