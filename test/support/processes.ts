import { readdirSync, readFileSync } from 'node:fs'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

/** State and parent of a process, as Linux tells them; undefined when there is no such process. */
function statusOf(pid: number): { state: string; parent: number } | undefined {
  try {
    // pid (command) state parent …; the command may hold anything.
    const [state = '', parent] = readFileSync(`/proc/${pid}/stat`, 'latin1')
      .replace(/^.*\) /s, '')
      .split(' ')
    return { state, parent: Number(parent) }
  } catch (error) {
    if (['ENOENT', 'ESRCH'].includes((error as NodeJS.ErrnoException).code ?? '')) return undefined
    throw error
  }
}

/** Whether a process still runs; one that only waits to be reaped does not. */
export function isAlive(pid: number): boolean {
  const status = statusOf(pid)
  return status !== undefined && status.state !== 'Z'
}

/** Our own child processes, dead ones that were not reaped included. */
export function ownChildren(): number[] {
  const pids = readdirSync('/proc').map(Number).filter(Number.isInteger)
  return pids.filter((pid) => statusOf(pid)?.parent === process.pid)
}

/** How many files, sockets and pipes we have open. */
export function openFiles(): number {
  return readdirSync('/proc/self/fd').length
}

setFlagsFromString('--expose-gc')
const collectGarbage = runInNewContext('gc') as () => void

/** Memory in use, in bytes, without garbage. */
export function memoryInUse(): number {
  collectGarbage()
  // Buffers that the first collection has found are given back beside it, and before a second one begins.
  collectGarbage()
  const { heapUsed, external } = process.memoryUsage()
  return heapUsed + external
}
