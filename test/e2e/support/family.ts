import { readdirSync, readFileSync } from 'node:fs'

/** All processes that `pid` has started, directly or not, and that still run. Reads /proc. */
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
    // It has ended while we looked.
    return undefined
  }
}
