import { readdirSync, readFileSync } from 'node:fs'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

/** Returns the state and the parent of a process from `/proc`; undefined if the process does not exist. */
function statusOf(pid: number): { state: string; parent: number } | undefined {
  try {
    // pid (command) state parent …; the command may contain any character.
    const [state = '', parent] = readFileSync(`/proc/${pid}/stat`, 'latin1')
      .replace(/^.*\) /s, '')
      .split(' ')
    return { state, parent: Number(parent) }
  } catch (error) {
    if (['ENOENT', 'ESRCH'].includes((error as NodeJS.ErrnoException).code ?? '')) return undefined
    throw error
  }
}

/** Returns true if a process still runs; false for a zombie. */
export function isAlive(pid: number): boolean {
  const status = statusOf(pid)
  return status !== undefined && status.state !== 'Z'
}

/** Returns our own child processes, zombies included. */
export function ownChildren(): number[] {
  const pids = readdirSync('/proc').map(Number).filter(Number.isInteger)
  return pids.filter((pid) => statusOf(pid)?.parent === process.pid)
}

/** Returns the number of our open files, sockets and pipes. */
export function openFiles(): number {
  return readdirSync('/proc/self/fd').length
}

setFlagsFromString('--expose-gc')
const collectGarbage = runInNewContext('gc') as () => void

/** Returns memory in use after garbage collection, in bytes. */
export function memoryInUse(): number {
  collectGarbage()
  // Buffers found by the first collection are freed in parallel, before the second collection begins.
  collectGarbage()
  const { heapUsed, external } = process.memoryUsage()
  return heapUsed + external
}
