/** The load of the full benchmark, in its own process: each message measures a row at full speed, then at a pace. */
import { readFileSync } from 'node:fs'
import { Pool } from 'undici'
import { cpuMicros } from '../cpu.ts'
import { Session, type Caller, type Era } from '../session.ts'
import { filling } from '../workload.ts'
import { pace, type Pace, type Paced } from './paced.ts'
import { StreamSession } from './stream-session.ts'

/** Transport of a row: Streamable HTTP in an era, or the older HTTP+SSE. */
export type Speech = Era | 'http+sse'

export interface Order {
  /** The MCP endpoint to load. */
  readonly url: string
  /** The tool to call, as named at the endpoint. */
  readonly tool: string
  readonly speech: Speech
  /** Bytes that the upstream appends to every text. */
  readonly fill: number
  /** Sessions with one call under way at a time, 1 to 1000. */
  readonly sessions: number
  /** Warm-up before the measured window, with all sessions calling without a pause, in milliseconds. */
  readonly warmUpMs: number
  /** Fewer calls do not end the warm-up, unless they take 10 seconds. Default: 0. */
  readonly warmUpCalls?: number
  /** The window in which all sessions call without a pause, in milliseconds. */
  readonly saturatedMs: number
  /** The following window at a pace, if any. */
  readonly pace?: Pace
  /** The process in the middle, if any. */
  readonly pid: number | undefined
}

/** Figures of one round of a row. */
export interface Figures {
  readonly callsPerSecond: number
  /** CPU of the middle process; absent if there is none. */
  readonly cpuMicrosPerCall?: number
  /** Share of the saturated window that the middle process was on a CPU; above 1 when its threads overlap. */
  readonly busy?: number
  /** Resident memory of the middle process after the windows, before its sessions were closed. */
  readonly rssBytes?: number
  /** Absent without a pace, or if the row did not hold the pace. */
  readonly paced?: Paced
}

export type Report = { readonly figures: Figures } | { readonly failure: string }

/** Time limit of a reply: long, because a thousand sessions opened at once on a busy machine wait for long. */
const REPLY_WITHIN_MS = 30_000

const OPENED_AT_ONCE = 32

let lastId = 0

process.on('message', (order: Order) => {
  measure(order).then(
    (figures) => process.send?.({ figures } satisfies Report),
    (error: unknown) => process.send?.({ failure: String(error) } satisfies Report),
  )
})

async function measure(order: Order): Promise<Figures> {
  const { url, tool, pid } = order
  const { origin, pathname } = new URL(url)
  const pool = new Pool(origin, {
    // A stream occupies its own connection.
    connections: order.speech === 'http+sse' ? 2 * order.sessions : order.sessions,
    headersTimeout: REPLY_WITHIN_MS,
    bodyTimeout: REPLY_WITHIN_MS,
  })
  try {
    const callers = await openAll(pool, pathname, order)
    const fill = filling(order.fill)
    const call = (caller: Caller) => {
      const id = ++lastId
      return caller.call(id, tool, `call ${id}`, fill)
    }
    await saturate(callers, order.warmUpMs, call, order.warmUpCalls)
    const cpuBefore = pid === undefined ? 0 : cpuMicros(pid)
    const { calls, tookMs } = await saturate(callers, order.saturatedMs, call)
    const cpu = pid === undefined ? 0 : cpuMicros(pid) - cpuBefore
    const paced = order.pace === undefined ? undefined : await pace(callers, order.pace, call)
    const memory = pid === undefined ? 0 : rssBytes(pid)
    await Promise.all(callers.map((caller) => caller.close()))
    return {
      callsPerSecond: (calls / tookMs) * 1_000,
      ...(pid !== undefined && {
        cpuMicrosPerCall: cpu / calls,
        busy: cpu / 1_000 / tookMs,
        rssBytes: memory,
      }),
      ...(paced !== undefined && { paced }),
    }
  } finally {
    await pool.destroy()
  }
}

async function openAll(pool: Pool, path: string, { sessions, tool, speech }: Order): Promise<Caller[]> {
  const callers: Caller[] = []
  let begun = 0
  const opener = async () => {
    while (begun++ < sessions) {
      callers.push(
        speech === 'http+sse'
          ? await StreamSession.open(pool, path, tool)
          : await Session.open(pool, path, tool, speech),
      )
    }
  }
  await Promise.all(Array.from({ length: OPENED_AT_ONCE }, opener))
  return callers
}

/** Longest wait for a row with slow calls, in milliseconds. */
const MOST_MS = 10_000

/** All sessions call without a pause until the time is over and `leastCalls` are made. Late calls count in full. */
async function saturate(
  callers: readonly Caller[],
  forMs: number,
  call: (caller: Caller) => Promise<void>,
  leastCalls = 0,
): Promise<{ readonly calls: number; readonly tookMs: number }> {
  const from = performance.now()
  let calls = 0
  const worker = async (caller: Caller) => {
    for (;;) {
      const tookMs = performance.now() - from
      if (tookMs >= forMs && (calls >= leastCalls || tookMs >= MOST_MS)) return
      await call(caller)
      calls++
    }
  }
  await Promise.all(callers.map(worker))
  return { calls, tookMs: performance.now() - from }
}

function rssBytes(pid: number): number {
  const kilobytes = /^VmRSS:\s*(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))?.[1]
  return Number(kilobytes) * 1_024
}
