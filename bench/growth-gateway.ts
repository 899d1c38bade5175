import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { systemClock } from '../src/mesh/clock.ts'
import type { Children } from './children.ts'
import { cpuMicros } from './cpu.ts'
import type { Passage } from './event-stamps.ts'
import { script } from './middle.ts'

/** Blocks of a config. */
export type Blocks = Readonly<Record<string, unknown>>

/** What a process holds, in bytes, once garbage is collected. */
export interface Memory {
  /** On V8's heap and outside of it, as far as Node knows. */
  readonly heap: number
  /** What the operating system counts: freed pages that were not given back are among it. */
  readonly resident: number
}

/** A gateway in a process of its own, whose memory can be asked for. */
export interface Grown {
  readonly pid: number
  /** Origin of the data plane. */
  readonly origin: string
  readonly control: string
  /** From its start until it was ready, in milliseconds: wall clock, and CPU. */
  readonly startMs: number
  readonly startCpuMs: number
  memory(): Promise<Memory>
  /** What became of the events that were passed on since it was asked last; only of a gateway that was planned to note that. */
  passages(): Promise<readonly Passage[]>
  /** Writes another config, with the same file name. */
  write(blocks: Blocks): void
}

const READY_EVERY_MS = 20
const READY_WITHIN_MS = 120_000

/** Guards that are there against crowds from one address, which is where all of the load comes from. */
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

/** How a gateway of this run is named, and what is in its config. */
export interface Planned {
  readonly name: string
  readonly blocks: Blocks
  /** Whether it notes when it reads and writes events. */
  readonly stamps?: boolean
}

/** Starts a gateway, and waits until all of its servers are up. */
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

/** What a gateway says at `/metrics`. */
export async function metricsOf({ control }: Grown): Promise<string> {
  const reply = await fetch(`${control}/metrics`, { headers })
  if (!reply.ok) throw new Error(`/metrics: status ${reply.status}`)
  return reply.text()
}

/** Has a gateway read its config again; how long that took, in milliseconds. */
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
