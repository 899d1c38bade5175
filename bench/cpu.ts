import { execFileSync } from 'node:child_process'
import { readFileSync, readdirSync } from 'node:fs'

/**
 * Returns the CPU time of a process so far, all threads, user and system, in microseconds. Linux only: from the
 * scheduler's nanoseconds per thread, or, if the kernel keeps none, from the clock ticks of `/proc/PID/stat` (usually
 * 10 ms each).
 */
export const cpuMicros: (pid: number) => number = fromScheduler(process.pid) > 0 ? fromScheduler : fromTicks()

function fromScheduler(pid: number): number {
  let nanos = 0
  for (const thread of readdirSync(`/proc/${pid}/task`)) {
    nanos += Number(readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'latin1').split(' ', 1)[0])
  }
  return nanos / 1_000
}

function fromTicks(): (pid: number) => number {
  const tickMicros = 1e6 / Number(execFileSync('getconf', ['CLK_TCK'], { encoding: 'latin1' }))
  return (pid) => {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
    // The second field is the program's name, in brackets, and may hold blanks: count from behind the name.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    return (Number(fields[11]) + Number(fields[12])) * tickMicros
  }
}
