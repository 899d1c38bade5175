import { createInterface } from 'node:readline'
import { setTimeout as wait } from 'node:timers/promises'
import { systemClock } from '../../mesh/clock.ts'
import { allRunning, familyOf, statusOf, type Leader, type Member } from './family.ts'

// A separate program: outlives its gateway until all processes left by the gateway have ended. Reads lines about
// servers' processes from its standard input: `+ NUMBER PID` after a start, `? NUMBER` before the end, `- NUMBER` when
// gone; NUMBER is the second part of the mark. The end of this input is the end of the gateway, for any reason.

/** Time between the end of the servers' input and SIGTERM, for servers that end by themselves; in milliseconds. */
const EOF_GRACE_MS = 500

/** Time between SIGTERM and SIGKILL, in milliseconds. */
const TERM_GRACE_MS = 2_000

/** Least time between SIGTERM and SIGKILL when a server has used up its grace period, in milliseconds. */
const SHORT_GRACE_MS = 500

/** Interval between checks for remaining processes, in milliseconds. */
const LOOK_MS = 50

/** Number of SIGKILLs: processes still there afterwards cannot be ended, or start new processes too fast. */
const KILLS = 40

/** Servers ending within this time are handled together, in milliseconds. */
const GATHER_MS = 200

/**
 * Least interval between searches for descendants of servers, in milliseconds. After a crash of a server, its
 * descendants outside of its group and without its environment can no longer be found. Searching takes at most a
 * hundredth of one CPU.
 */
const WATCH_MS = 2_000
const WATCH_SHARE = 0.01

/** A server's process, and its descendants found so far. */
interface Server extends Leader {
  known: readonly Member[]
  /** When its end began, on the monotonic clock in milliseconds; undefined while running, or after ending by itself. */
  endsSince: number | undefined
}

const [gateway = ''] = process.argv.slice(2)
const running = new Map<string, Server>()
let leaving = new Map<string, Server>()
/** The servers whose remaining processes are being ended. */
const ending = new Set<Server>()
let isWatching = false
let isLast = false

/** Waits. The timer keeps this process alive only after the end of the input: until then, the open input does. */
const pause = (ms: number) => wait(ms, undefined, { ref: isLast })

// Ignores signals: when a signal to all processes ends the gateway, this process must still end the servers.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => undefined)

createInterface({ input: process.stdin })
  .on('line', (line) => {
    const [what, number = '', pid] = line.split(' ')
    switch (what) {
      case '+':
        return start(number, Number(pid))
      case '?':
        return look(number)
      default:
        return leave(number)
    }
  })
  .once('close', () => {
    isLast = true
    const isMark = (mark: string) => mark.startsWith(`${gateway}.`)
    // Servers left running by a killed gateway still need time to end by themselves; servers that the gateway was
    // ending have had this time.
    const graceMs = running.size > 0 ? EOF_GRACE_MS : 0
    void end([...running.values(), ...leaving.values(), ...ending], isMark, graceMs)
  })

function start(number: string, pid: number): void {
  running.set(number, { pid, start: statusOf(pid)?.start, known: [], endsSince: undefined })
  if (!isWatching) void watch()
}

/** Records descendants of servers, as long as there are servers. */
async function watch(): Promise<void> {
  isWatching = true
  for (let tookMs = 0; running.size > 0 && !isLast;) {
    await pause(Math.max(WATCH_MS, tookMs / WATCH_SHARE))
    const since = systemClock.now()
    const processes = allRunning()
    for (const server of running.values())
      server.known = familyOf({ leaders: [server], known: server.known }, processes)
    tookMs = systemClock.now() - since
  }
  isWatching = false
}

/**
 * Records all processes of a server before its end: while the parents live, descendants outside of their group and
 * environment can be found too.
 */
function look(number: string): void {
  const server = running.get(number)
  if (server === undefined) return
  server.endsSince = systemClock.now()
  server.known = familyOf({
    leaders: [server],
    isMark: (mark) => mark === `${gateway}.${number}`,
    known: server.known,
  })
}

/** Called after the gateway has ended a server and its group. Soon ends remaining processes outside of the group. */
function leave(number: string): void {
  const server = running.get(number)
  if (server === undefined) return
  running.delete(number)
  leaving.set(number, server)
  if (leaving.size === 1) void pause(GATHER_MS).then(endLeaving)
}

async function endLeaving(): Promise<void> {
  const gone = leaving
  leaving = new Map()
  const marks = new Set([...gone.keys()].map((number) => `${gateway}.${number}`))
  for (const server of gone.values()) ending.add(server)
  await end([...gone.values()], (mark) => marks.has(mark), 0)
  for (const server of gone.values()) ending.delete(server)
}

/**
 * Returns the time between SIGTERM and SIGKILL for processes outside of the groups, in milliseconds. All processes of a
 * server share one grace period, which begins when the server itself is asked to end.
 */
function termGraceOf(servers: readonly Server[]): number {
  const now = systemClock.now()
  const left = servers.map(
    ({ endsSince = now - EOF_GRACE_MS }) => endsSince + EOF_GRACE_MS + TERM_GRACE_MS - now,
  )
  return Math.max(SHORT_GRACE_MS, ...left)
}

/** Ends processes, gracefully if possible. */
async function end(
  sought: readonly Server[],
  isMark: (mark: string) => boolean,
  graceMs: number,
): Promise<void> {
  let known = sought.flatMap((server) => server.known)
  const isLeft = () => {
    known = familyOf({ leaders: sought, isMark, known })
    return process.platform === 'linux' ? known.length > 0 : sought.some(({ pid }) => signal(-pid, 0))
  }
  const send = (name: NodeJS.Signals) => {
    for (const { pid, start } of known) if (statusOf(pid)?.start === start) signal(pid, name)
    if (process.platform !== 'linux') for (const { pid } of sought) signal(-pid, name)
  }
  const isOver = async (limitMs: number) => {
    for (let waited = 0; isLeft(); waited += LOOK_MS) {
      if (waited >= limitMs) return false
      await pause(LOOK_MS)
    }
    return true
  }
  // A stopped process could neither read the end of its input nor react to SIGTERM.
  if (isLeft()) send('SIGCONT')
  if (await isOver(graceMs)) return
  send('SIGTERM')
  if (await isOver(termGraceOf(sought))) return
  for (let count = 0; count < KILLS; count++) {
    send('SIGKILL')
    if (await isOver(LOOK_MS)) return
  }
}

/** Sends a signal. Returns false when the process is gone. */
function signal(pid: number, name: NodeJS.Signals | 0): boolean {
  try {
    return process.kill(pid, name)
  } catch {
    // The process is gone, or its number belongs to another user's process by now.
    return false
  }
}
