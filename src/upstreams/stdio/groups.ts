import { spawn, type ChildProcess } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import type { Writable } from 'node:stream'
import { fileURLToPath } from 'node:url'
import type { Clock, Millis } from '../../mesh/clock.ts'
import type { Log } from '../../telemetry/log.ts'
import { STARTED_BY } from './family.ts'

/** The leaders of the gateway's process groups, with the number in each mark. */
const leaders = new Map<ChildProcess, number>()

/** The first part of all marks; renewed after each orderly end of a supervisor. */
let gateway = randomUUID()

/** Most starts of the supervisor; afterwards, servers run without a supervisor. */
const MAX_STARTS = 5

/** How long the supervisor may take after the end of all servers, in milliseconds. */
const LONGEST_END_MS: Millis = 2_500

const program = fileURLToPath(new URL('./supervisor.js', import.meta.url))

/**
 * The process that ends our servers after a kill of the gateway; see `supervisor.ts`. Starts with the first server, and
 * serves all.
 */
let supervisor: ChildProcess | undefined
let starts = 0
let count = 0

/** The environment and the registration of a program that is about to start. */
export interface Place {
  readonly env: Readonly<Record<string, string>>
  /** Call once the program runs and leads its own group. */
  readonly taken: (leader: ChildProcess) => void
}

/**
 * Ensures that a group does not outlive the gateway. Call before the start: if the gateway is killed before `taken`,
 * the supervisor finds the program by its mark.
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

/**
 * Announces the end of a program to the supervisor. Call it before the end, because more descendants can be found while
 * the program lives.
 */
export function aboutToEnd(leader: ChildProcess): void {
  const number = leaders.get(leader)
  if (number !== undefined) tell(`? ${number}`)
}

/** Starts the supervisor. Never throws, because servers can also run without a supervisor. */
function startSupervisor(log: Log): void {
  if (process.platform === 'win32' || starts === MAX_STARTS) return
  starts++
  // Runs in its own session, out of reach of Ctrl-C, and without our environment, which may hold secrets.
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
  // If the gateway has no file descriptors left, `stdin` is missing; the `error` event reports this failure later.
  const input = started.stdin as (Writable & { unref(): void }) | null | undefined
  // Write errors are ignored: the `exit` handler reports the end of the supervisor.
  input?.on('error', () => undefined)
  input?.unref()
  started.unref()
  for (const [leader, number] of leaders) tell(`+ ${number} ${leader.pid}`)
}

/**
 * Ends the supervisor if no server runs; the supervisor first ends processes left by servers. Resolves at its end, or
 * after `LONGEST_END_MS`.
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
      // The group is usually gone already; no error may keep the other groups alive.
      continue
    }
  }
}
