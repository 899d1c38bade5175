/** The load generator, in its own process: measures one subject per message. */
import { Pool } from 'undici'
import { cpuMicros } from './cpu.ts'
import { Session, type Era } from './session.ts'
import { quantile } from './statistics.ts'
import { filling } from './workload.ts'

export interface Order {
  /** The MCP endpoint to load. */
  readonly url: string
  /** The tool to call, as named at the endpoint. */
  readonly tool: string
  readonly era: Era
  /** Bytes that the upstream appends to every text. */
  readonly fill: number
  /** Sessions, each with one call under way at a time. */
  readonly callers: number
  /** Calls before the measured window opens. */
  readonly warmUp: number
  readonly calls: number
  /** The process in the middle, if any. */
  readonly pid: number | undefined
}

export interface Figures {
  readonly callsPerSecond: number
  readonly p50Ms: number
  readonly p99Ms: number
  /** CPU of the middle process; absent if there is none. */
  readonly cpuMicrosPerCall?: number
  /** Share of the window that the middle process was on a CPU; above 1 when its threads overlap. */
  readonly busy?: number
}

/** The answer of the load generator: figures, or a failure. */
export type Report = { readonly figures: Figures } | { readonly failure: string }

const REPLY_WITHIN_MS = 10_000

let lastId = 0

process.on('message', (order: Order) => {
  measure(order).then(
    (figures) => process.send?.({ figures } satisfies Report),
    (error: unknown) => process.send?.({ failure: String(error) } satisfies Report),
  )
})

async function measure(order: Order): Promise<Figures> {
  const { origin, pathname } = new URL(order.url)
  const pool = new Pool(origin, {
    connections: order.callers,
    headersTimeout: REPLY_WITHIN_MS,
    bodyTimeout: REPLY_WITHIN_MS,
  })
  try {
    const opening = Array.from({ length: order.callers }, () =>
      Session.open(pool, pathname, order.tool, order.era),
    )
    const sessions = await Promise.all(opening)
    const call = caller(order.tool, filling(order.fill))
    await drive(sessions, order.warmUp, call)
    const figures = await window(sessions, order, call)
    await Promise.all(sessions.map((session) => session.close()))
    return figures
  } finally {
    await pool.destroy()
  }
}

type Call = (session: Session) => Promise<void>

function caller(tool: string, fill: string): Call {
  return (session) => {
    const id = ++lastId
    return session.call(id, tool, `call ${id}`, fill)
  }
}

async function window(sessions: readonly Session[], { calls, pid }: Order, call: Call): Promise<Figures> {
  const cpuBefore = pid === undefined ? 0 : cpuMicros(pid)
  const startedAt = performance.now()
  const latencies = await drive(sessions, calls, call)
  const elapsedMs = performance.now() - startedAt
  const cpu = pid === undefined ? undefined : cpuMicros(pid) - cpuBefore
  latencies.sort()
  return {
    callsPerSecond: (calls / elapsedMs) * 1_000,
    p50Ms: quantile(latencies, 0.5),
    p99Ms: quantile(latencies, 0.99),
    ...(cpu !== undefined && { cpuMicrosPerCall: cpu / calls, busy: cpu / 1_000 / elapsedMs }),
  }
}

/** Makes `calls` calls, spread over free sessions; returns their latencies in ms. */
async function drive(sessions: readonly Session[], calls: number, call: Call): Promise<Float64Array> {
  const latencies = new Float64Array(calls)
  let begun = 0
  const worker = async (session: Session) => {
    while (begun < calls) {
      const index = begun++
      const sentAt = performance.now()
      await call(session)
      latencies[index] = performance.now() - sentAt
    }
  }
  await Promise.all(sessions.map(worker))
  return latencies
}
