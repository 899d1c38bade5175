import type { ChildProcess } from 'node:child_process'

/** Leaders of the process groups that run under ours. */
const leaders = new Set<ChildProcess>()

/**
 * Sees to it that a group of processes does not outlive ours, not even when ours exits without ending
 * anything in order. `leader` leads a group of its own.
 */
export function endWithUs(leader: ChildProcess): void {
  if (leaders.size === 0) process.on('exit', killAll)
  leaders.add(leader)
  leader.once('close', () => {
    leaders.delete(leader)
    if (leaders.size === 0) process.off('exit', killAll)
  })
}

function killAll(): void {
  for (const { pid } of leaders) {
    try {
      process.kill(-(pid as number), 'SIGKILL')
    } catch {
      // Gone already; whatever else it is must not spare the others.
      continue
    }
  }
}
