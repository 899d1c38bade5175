import { readdirSync, readFileSync } from 'node:fs'
import { type Member, statusOf } from '../../../src/upstreams/stdio/family.ts'
import { until } from '../../support/until.ts'

/** Returns all living descendants of `pid`. Reads /proc. */
export function descendantsOf(pid: number): number[] {
  const children = new Map<number, number[]>()
  for (const entry of readdirSync('/proc')) {
    const parent = /^\d+$/.test(entry) ? parentOf(entry) : undefined
    if (parent !== undefined) children.set(parent, [...(children.get(parent) ?? []), Number(entry)])
  }
  const found: number[] = []
  const look = [pid]
  for (let next = look.pop(); next !== undefined; next = look.pop()) {
    const born = children.get(next) ?? []
    found.push(...born)
    look.push(...born)
  }
  return found
}

function parentOf(pid: string): number | undefined {
  try {
    const [, parent] = /^\d+ \(.*\) [^Z] (\d+)/s.exec(readFileSync(`/proc/${pid}/stat`, 'utf8')) ?? []
    return parent === undefined ? undefined : Number(parent)
  } catch {
    // The process ended meanwhile.
    return undefined
  }
}

/** Returns the running processes with their start times: a pid may be reused, a start time may not. */
export function identified(pids: readonly number[]): Member[] {
  return pids.flatMap((pid) => statusOf(pid) ?? [])
}

export function left(processes: readonly Member[]): Member[] {
  return processes.filter(({ pid, start }) => statusOf(pid)?.start === start)
}

export async function allGone(processes: readonly Member[]): Promise<void> {
  await until('no process is left', () => left(processes).length === 0)
}
