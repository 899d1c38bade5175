import { readdirSync, readFileSync } from 'node:fs'

/**
 * The environment variable with the mark of a server's processes: `{gateway}.{number}`, after the marks of enclosing
 * gateways, separated by spaces. All descendants of a server inherit the variable, even outside of its process group.
 */
export const STARTED_BY = 'BREAKWATER_STARTED_BY'

/** A process, identified also by its start time: its number may belong to another process later. */
export interface Member {
  readonly pid: number
  /** Start time, in clock ticks since the machine's start. */
  readonly start: string
}

/** The leader of a process group and session, both under its number. */
export interface Leader {
  readonly pid: number
  /** Undefined when the leader had ended before its start time could be read. */
  readonly start: string | undefined
}

/** The servers whose processes are to be found. */
export interface Sought {
  readonly leaders: readonly Leader[]
  /** Whether a mark in a process's environment belongs to the servers; by default environments are ignored. */
  readonly isMark?: (mark: string) => boolean
  /** Processes found earlier: children that they have started since then belong to the servers too. */
  readonly known: readonly Member[]
}

interface Status extends Member {
  readonly parent: number
  readonly group: number
  readonly session: number
}

type Running = ReadonlyMap<number, Status>

/** Returns a running process's status on Linux; undefined when the process is gone or a zombie. */
export function statusOf(pid: number): Status | undefined {
  const text = readProc(`${pid}/stat`)
  // pid (command) state parent group session … start; the command may hold anything.
  const fields = text?.slice(text.lastIndexOf(')') + 2).split(' ') ?? []
  const [state, parent, group, session] = fields
  const start = fields[19]
  if (start === undefined || state === 'Z' || state === 'X') return undefined
  return { pid, start, parent: Number(parent), group: Number(group), session: Number(session) }
}

/**
 * Returns all processes of servers: by group or session, by the mark in the environment, or as children of such
 * processes. Linux only: elsewhere there is no `/proc`, and the result is empty.
 */
export function familyOf({ leaders, isMark, known }: Sought, running: Running = allRunning()): Status[] {
  const groups = new Set(leaders.filter((leader) => isStill(leader, running)).map(({ pid }) => pid))
  const family = new Map<number, Status>()
  const children = new Map<number, Status[]>()
  for (const status of running.values()) {
    const { pid, parent, group, session } = status
    const siblings = children.get(parent)
    if (siblings === undefined) children.set(parent, [status])
    else siblings.push(status)
    const isMember = groups.has(group) || groups.has(session)
    if (isMember || (isMark !== undefined && marksOf(pid).some(isMark))) family.set(pid, status)
  }
  for (const { pid, start } of known) {
    const status = running.get(pid)
    if (status?.start === start) family.set(pid, status)
  }
  // Processes added while the loop runs are visited as well.
  for (const { pid } of family.values())
    for (const child of children.get(pid) ?? []) family.set(child.pid, child)
  return [...family.values()]
}

/**
 * Whether a leader's number still means its group: a number is not reused while the group lives, with or without its
 * leader.
 */
function isStill({ pid, start }: Leader, running: Running): boolean {
  const status = running.get(pid)
  return start !== undefined && (status === undefined || status.start === start)
}

/** Returns all running processes except this process. */
export function allRunning(): Running {
  const running = new Map<number, Status>()
  for (const name of listProc()) {
    const pid = Number(name)
    const status = Number.isInteger(pid) && pid !== process.pid ? statusOf(pid) : undefined
    if (status !== undefined) running.set(pid, status)
  }
  return running
}

/** Returns the marks in a process's environment. Environments of other users' processes are hidden. */
function marksOf(pid: number): string[] {
  const text = readProc(`${pid}/environ`)
  const from = text?.indexOf(`${STARTED_BY}=`) ?? -1
  if (text === undefined || from === -1) return []
  return (
    text
      .slice(from + STARTED_BY.length + 1)
      .split('\0', 1)[0]
      ?.split(' ') ?? []
  )
}

function listProc(): string[] {
  try {
    return readdirSync('/proc')
  } catch (error) {
    return nothing(error, [])
  }
}

function readProc(path: string): string | undefined {
  try {
    return readFileSync(`/proc/${path}`, 'latin1')
  } catch (error) {
    return nothing(error, undefined)
  }
}

/**
 * Returns `instead` after an expected error: processes may end meanwhile, some are hidden, and some systems have no
 * `/proc`. Throws other errors.
 */
function nothing<T>(error: unknown, instead: T): T {
  if (['ENOENT', 'ESRCH', 'EACCES', 'EPERM', 'ENOTDIR'].includes((error as NodeJS.ErrnoException).code ?? ''))
    return instead
  throw error
}
