import { readlinkSync } from 'node:fs'
import { getPriority, setPriority } from 'node:os'

/** Added nice value: on a shared core, the process gets about ten times the thread's share. */
const NICER = 10

/** The largest nice value. */
const NICEST = 19

/**
 * Lowers the priority of the calling thread, so calls go first when cores are short. Works on Linux only, where each
 * thread has a priority (setpriority(2)), inherited by threads it starts. Does nothing elsewhere, or when refused.
 */
export function giveWay(): void {
  const thread = ownThread()
  if (thread === undefined) return
  try {
    setPriority(thread, Math.min(NICEST, getPriority(thread) + NICER))
  } catch {
    // The thread keeps the usual priority.
  }
}

/** Returns the kernel's id of this thread, not available from Node. Undefined without Linux's `/proc`. */
function ownThread(): number | undefined {
  try {
    return Number(/\/task\/(\d+)$/.exec(readlinkSync('/proc/thread-self'))?.[1]) || undefined
  } catch {
    return undefined
  }
}
