import { createInterface } from 'node:readline'
import { setTimeout as wait } from 'node:timers/promises'
import { systemClock } from '../../mesh/clock.ts'
import { allRunning, familyOf, statusOf, type Leader, type Member } from './family.ts'

// A program of its own: it outlives the gateway that started it, for as long as it takes to end what that gateway leaves
// behind. It is told of servers' processes by lines on its standard input: `+ NUMBER PID` when one was started, `? NUMBER`
// before it is ended, `- NUMBER` when it is gone; NUMBER is the second part of its mark. The end of that input is the end of
// the gateway, however it came about.

/** Between the end of the servers' input and SIGTERM, for those that end by themselves then; in milliseconds. */
const EOF_GRACE_MS = 500

/** Between SIGTERM and SIGKILL, in milliseconds. */
const TERM_GRACE_MS = 2_000

/** The least time between SIGTERM and SIGKILL where a server has used up the other one, in milliseconds. */
const SHORT_GRACE_MS = 500

/** How often is looked whether something is left, in milliseconds. */
const LOOK_MS = 50

/** How often SIGKILL is sent: what is still there then cannot be ended, or starts processes faster than they are. */
const KILLS = 40

/** Servers that end within this time are looked after together, in milliseconds. */
const GATHER_MS = 200

/**
 * How often is looked for what servers have started, in milliseconds: one that crashes can name its descendants no more, and
 * those that left both its group and its environment bear no mark. Looks take a hundredth of one CPU at most.
 */
const WATCH_MS = 2_000
const WATCH_SHARE = 0.01

/** A server's process, and those that were found to belong to it so far. */
interface Server extends Leader {
  known: readonly Member[]
  /** When its end began, in milliseconds of the monotonic clock; undefined while it runs, or if it ended by itself. */
  endsSince: number | undefined
}

const [gateway = ''] = process.argv.slice(2)
const running = new Map<string, Server>()
let leaving = new Map<string, Server>()
/** The servers whose families are being ended. */
const ending = new Set<Server>()
let isWatching = false
let isLast = false

/** Holds the process only when its input has ended: until then that does, and after it nothing older counts. */
const pause = (ms: number) => wait(ms, undefined, { ref: isLast })

// The gateway still needs this process to end its servers when a signal to all of its processes ends the gateway.
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
    // Servers that a killed gateway left running have heard of nothing yet; servers that the gateway was ending have.
    const graceMs = running.size > 0 ? EOF_GRACE_MS : 0
    void end([...running.values(), ...leaving.values(), ...ending], isMark, graceMs)
  })

function start(number: string, pid: number): void {
  running.set(number, { pid, start: statusOf(pid)?.start, known: [], endsSince: undefined })
  if (!isWatching) void watch()
}

/** Keeps in mind what servers have started, for as long as there are any. */
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

/** While its parents still live, also what has left their group and their environment can be told. */
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

/** The gateway has ended a server and its group. What left the group may still be there. */
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
 * How long may pass between SIGTERM and SIGKILL for what servers have left outside of their groups: a server's family has one
 * time of grace, from when the server itself was asked to end, and not another one after it.
 */
function termGraceOf(servers: readonly Server[]): number {
  const now = systemClock.now()
  const left = servers.map(
    ({ endsSince = now - EOF_GRACE_MS }) => endsSince + EOF_GRACE_MS + TERM_GRACE_MS - now,
  )
  return Math.max(SHORT_GRACE_MS, ...left)
}

/** Ends processes, in order if they can. */
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

/** False when there is nobody to signal. */
function signal(pid: number, name: NodeJS.Signals | 0): boolean {
  try {
    return process.kill(pid, name)
  } catch {
    // Gone already, or another user by now: neither is ours to end.
    return false
  }
}
