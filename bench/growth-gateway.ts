import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { systemClock } from '../src/mesh/clock.ts'
import type { Children } from './children.ts'
import { cpuMicros } from './cpu.ts'
import type { Passage } from './event-stamps.ts'
import { script } from './middle.ts'

export type Blocks = Readonly<Record<string, unknown>>

/** Memory of a process after garbage collection, in bytes. */
export interface Memory {
  /** Memory on V8's heap and outside the heap, as far as Node knows. */
  readonly heap: number
  /** The operating system's count, including freed pages that were not returned. */
  readonly resident: number
}

/** A gateway in its own process with readable memory figures. */
export interface Grown {
  readonly pid: number
  /** Origin of the data plane. */
  readonly origin: string
  readonly control: string
  /** From start to readiness, in milliseconds: wall clock, and CPU. */
  readonly startMs: number
  readonly startCpuMs: number
  memory(): Promise<Memory>
  /** Returns the passages of events since the last call; only for a gateway planned with `stamps`. */
  passages(): Promise<readonly Passage[]>
  write(blocks: Blocks): void
}

const READY_EVERY_MS = 20
const READY_WITHIN_MS = 120_000

/** Raises guards against crowds from one address, because all load comes from one address. */
const noCrowd = {
  maxInFlight: 50_000,
  sessions: { max: 100_000, unused: '1h', idle: '1h', maxInFlight: 10_000 },
  limits: {
    connections: 100_000,
    perClient: 1,
    perSession: false,
    perTenant: false,
  },
}

export interface Planned {
  readonly name: string
  readonly blocks: Blocks
  /** True: the gateway records reads and writes of events. */
  readonly stamps?: boolean
}

/** Starts a gateway and waits until all of its servers are up. */
export async function grow(
  children: Children,
  scratch: string,
  { name, blocks, stamps = false }: Planned,
): Promise<Grown> {
  const file = join(scratch, `${name}.json`)
  const write = (given: Blocks) => {
    const { gateway, ...rest } = given
    const own = { listen: '127.0.0.1:0', control: '127.0.0.1:0', environment: 'test', ready: 'all' }
    const all = { gateway: { ...own, ...noCrowd, ...(gateway as object) }, ...rest }
    writeFileSync(file, JSON.stringify({ ...all, gateway: { controlToken: CONTROL_TOKEN, ...all.gateway } }))
  }
  write(blocks)
  const preloaded = ['../test/fixtures/heap-probe.js', ...(stamps ? ['./event-stamps.js'] : [])]
  const probes = preloaded.flatMap((file) => ['--import', pathToFileURL(script(file)).href])
  const startedAt = systemClock.now()
  const { pid, origin, control, child } = await children.listening(
    ['--expose-gc', ...probes, script('../dist/main.js'), 'start', '--config', file],
    { channel: true, quiet: true },
  )
  while (!(await fetch(`${origin}/readyz`)).ok) {
    if (systemClock.now() > startedAt + READY_WITHIN_MS)
      throw new Error(`${name}: not ready after ${READY_WITHIN_MS / 1_000} s`)
    await pause(READY_EVERY_MS)
  }
  return {
    pid,
    origin,
    control,
    startMs: systemClock.now() - startedAt,
    startCpuMs: cpuMicros(pid) / 1_000,
    write,
    async memory() {
      child.send('measure')
      const [{ heapUsed = 0, external = 0 }] = (await once(child, 'message')) as [Record<string, number>]
      return { heap: heapUsed + external, resident: residentBytes(pid) }
    },
    async passages() {
      child.send('passages')
      const [passages] = (await once(child, 'message')) as [readonly Passage[]]
      return passages
    },
  }
}

/** Lets the operator of a run ask for reloads. */
const CONTROL_TOKEN = 'growth-of-this-run'

const headers = { authorization: `Bearer ${CONTROL_TOKEN}` }

/** Returns a gateway's text at `/metrics`. */
export async function metricsOf({ control }: Grown): Promise<string> {
  const reply = await fetch(`${control}/metrics`, { headers })
  if (!reply.ok) throw new Error(`/metrics: status ${reply.status}`)
  return reply.text()
}

/** Makes a gateway reload its config. Returns the time in milliseconds. */
export async function reload({ control }: Grown): Promise<number> {
  const from = systemClock.now()
  const reply = await fetch(`${control}/admin/reload`, { method: 'POST', headers })
  const text = await reply.text()
  if (!reply.ok) throw new Error(`reload: status ${reply.status}: ${text.slice(0, 300)}`)
  return systemClock.now() - from
}

export function residentBytes(pid: number): number {
  return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))?.[1]) * 1_024
}

export function pause(ms: number): Promise<void> {
  return systemClock.sleep(ms, new AbortController().signal)
}
