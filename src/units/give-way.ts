import { readlinkSync } from 'node:fs'
import { getPriority, setPriority } from 'node:os'

/** How much nicer than the process, on Unix's scale: where both want the same core, the process gets ten times as much of it. */
const NICER = 10

/** The nicest that there is. */
const NICEST = 19

/**
 * Has the thread that calls this give way to the rest of the process where cores are short: calls go first. On Linux only, where a thread has a
 * priority of its own (setpriority(2)), which threads that it starts have as well; elsewhere, and where the system does not allow it, nothing changes.
 */
export function giveWay(): void {
  const thread = ownThread()
  if (thread === undefined) return
  try {
    setPriority(thread, Math.min(NICEST, getPriority(thread) + NICER))
  } catch {
    // It takes its share, as any thread does.
  }
}

/** Returns the kernel's id of this thread, which Node does not tell. Undefined where there is no `/proc` of Linux. */
function ownThread(): number | undefined {
  try {
    return Number(/\/task\/(\d+)$/.exec(readlinkSync('/proc/thread-self'))?.[1]) || undefined
  } catch {
    return undefined
  }
}
