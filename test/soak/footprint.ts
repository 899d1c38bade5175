import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, readFileSync } from 'node:fs'
import { studentQuantile } from '../../src/experiments/statistics/distributions.ts'
import { descendantsOf } from '../e2e/support/family.ts'
import type { Gateway } from '../e2e/support/gateway.ts'

/** Memory of a process in use after garbage collection. */
export interface Heap {
  /** On the heap and outside the heap, without machine code, in bytes. */
  readonly heapBytes: number
  /**
   * Machine code on the heap, with V8's metadata, in bytes. V8 compiles and optimises a function by its number of runs,
   * which takes hours for code that runs once per reload or crash. The size of the program bounds this value, so it
   * shows no leak; a leaked function is an object and counts in `heapBytes`.
   */
  readonly codeBytes: number
}

export interface Footprint extends Heap {
  /** Time since the beginning of the run, in seconds. */
  readonly atS: number
  readonly residentBytes: number
  /** Files, sockets and pipes. */
  readonly handles: number
  /** Child processes, at any depth. */
  readonly processes: number
  /** Agents' sessions. */
  readonly sessions: number
}

/** Measures a process started with test/fixtures/heap-probe. */
export async function heapOf(child: ChildProcess): Promise<Heap> {
  child.send('measure')
  const [{ heapUsed, external, arrayBuffers, code }] = (await once(child, 'message')) as [
    Record<'heapUsed' | 'external' | 'arrayBuffers' | 'code', number>,
  ]
  return { heapBytes: heapUsed - code + Math.max(external, arrayBuffers), codeBytes: code }
}

/** Measures a gateway started with test/fixtures/heap-probe. */
export async function footprintOf(gateway: Gateway, atS: number): Promise<Footprint> {
  const { child, pid } = gateway.program
  const heap = await heapOf(child)
  const { body } = await gateway.admin<{ sessions: unknown[] }>('/admin/sessions')
  const [, kilobytes] = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8')) ?? []
  return {
    atS,
    ...heap,
    residentBytes: Number(kilobytes) * 1024,
    handles: readdirSync(`/proc/${pid}/fd`).length,
    processes: descendantsOf(pid).length,
    sessions: body.sessions.length,
  }
}

/** A slope with its 95 % interval, per unit of x. */
export interface Slope {
  readonly estimate: number
  readonly low: number
  readonly high: number
}

/** Ordinary least squares: the slope of y over x; needs at least three points. */
export function slopeOf(points: readonly (readonly [x: number, y: number])[]): Slope {
  const n = points.length
  const meanX = points.reduce((sum, [x]) => sum + x, 0) / n
  const meanY = points.reduce((sum, [, y]) => sum + y, 0) / n
  const spreadX = points.reduce((sum, [x]) => sum + (x - meanX) ** 2, 0)
  const estimate = points.reduce((sum, [x, y]) => sum + (x - meanX) * (y - meanY), 0) / spreadX
  const residuals = points.reduce((sum, [x, y]) => sum + (y - meanY - estimate * (x - meanX)) ** 2, 0)
  const half = studentQuantile(0.975, n - 2) * Math.sqrt(residuals / (n - 2) / spreadX)
  return { estimate, low: estimate - half, high: estimate + half }
}
