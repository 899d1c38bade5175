import { createInterface } from 'node:readline'
import { setTimeout as wait } from 'node:timers/promises'
import { familyOf, statusOf, type Leader, type Member } from './family.ts'

// A program of its own: it outlives the gateway that started it, for as long as it takes to end what that gateway leaves
// behind. It is told of servers' processes by lines on its standard input: `+ NUMBER PID` when one was started, `? NUMBER`
// before it is ended, `- NUMBER` when it is gone; NUMBER is the second part of its mark. The end of that input is the end of
// the gateway, however it came about.

/** Between the end of the servers' input and SIGTERM, for those that end by themselves then; in milliseconds. */
const EOF_GRACE_MS = 500

/** Between SIGTERM and SIGKILL, in milliseconds. */
const TERM_GRACE_MS = 2_000

/** How often is looked whether something is left, in milliseconds. */
const LOOK_MS = 50

/** How often SIGKILL is sent: what is still there then cannot be ended, or starts processes faster than they are. */
const KILLS = 40

/** Servers that end within this time are looked after together, in milliseconds. */
const GATHER_MS = 200

/** A server's process, and those that were found to belong to it so far. */
interface Server extends Leader {
  known: readonly Member[]
}

const [gateway = ''] = process.argv.slice(2)
const running = new Map<string, Server>()
let leaving = new Map<string, Server>()
let isLast = false

/** Holds the process only when its input has ended: until then that does, and after it nothing older counts. */
const pause = (ms: number) => wait(ms, undefined, { ref: isLast })

// Whoever ends the gateway by a signal to all of its processes still needs what ends their servers.
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
    void end([...running.values(), ...leaving.values()], isMark, EOF_GRACE_MS)
  })

function start(number: string, pid: number): void {
  running.set(number, { pid, start: statusOf(pid)?.start, known: [] })
}

/** While its parents still live, also what has left their group and their environment can be told. */
function look(number: string): void {
  const server = running.get(number)
  if (server !== undefined)
    server.known = familyOf({
      leaders: [server],
      isMark: (mark) => mark === `${gateway}.${number}`,
      known: [],
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

function endLeaving(): Promise<void> {
  const gone = leaving
  leaving = new Map()
  const marks = new Set([...gone.keys()].map((number) => `${gateway}.${number}`))
  return end([...gone.values()], (mark) => marks.has(mark), 0)
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
  if (await isOver(graceMs)) return
  send('SIGTERM')
  if (await isOver(TERM_GRACE_MS)) return
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
