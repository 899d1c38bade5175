/** Persistent agents, in their own process: sessions, calls and streams stay open until `leave`. */
import { connect } from 'node:net'
import { Pool } from 'undici'
import { systemClock } from '../src/mesh/clock.ts'
import type { Stream } from './exchange.ts'
import { Session } from './session.ts'
import { quantile } from './statistics.ts'

export type AgentsOrder =
  /** Opens sessions; each calls `tools`, and optionally listens. */
  | {
      readonly kind: 'open'
      readonly url: string
      readonly count: number
      /** Each called once, in order; the first has to be listed. */
      readonly tools: readonly string[]
      readonly listens?: boolean
    }
  /** Begins calls without immediate answers, over `sessions` sessions. */
  | {
      readonly kind: 'hold'
      readonly url: string
      readonly tool: string
      readonly count: number
      readonly sessions: number
    }
  | { readonly kind: 'watch'; readonly url: string; readonly tool: string; readonly count: number }
  /** Listens at both for the same events, and measures the extra delay through `via`. */
  | { readonly kind: 'lag'; readonly direct: Spot; readonly via: Spot; readonly how: 'call' | 'listen' }
  /** Returns the delays since `lag`. */
  | { readonly kind: 'lags' }
  /** Begins a streaming call, or listens, over a connection that is never read. */
  | { readonly kind: 'deaf'; readonly url: string; readonly tool: string; readonly how: 'call' | 'listen' }
  /** Calls on time, whether or not earlier calls are over. */
  | {
      readonly kind: 'steady'
      readonly url: string
      readonly tool: string
      readonly forMs: number
      readonly everyMs: number
    }
  /** Lists tools over one session, `times` times; the first time in a new session. */
  | { readonly kind: 'list'; readonly url: string; readonly tool: string; readonly times: number }
  /** Ends everything open. */
  | { readonly kind: 'leave' }

export interface Spot {
  readonly url: string
  readonly tool: string
}

export interface Lag {
  readonly events: number
  /** From a server's write of an event until the read, in milliseconds. */
  readonly direct: readonly [p50: number, p99: number]
  readonly via: readonly [p50: number, p99: number]
  readonly added: readonly [p50: number, p99: number]
}

export interface AgentsReport {
  readonly failure?: string
  /** Duration of the order, in milliseconds. */
  readonly tookMs: number
  readonly lag?: Lag
  /** Durations of the calls on time, ascending, in milliseconds. */
  readonly latencies?: readonly number[]
  /** Tools of a list, and the time of each listing, in milliseconds. */
  readonly listed?: { readonly tools: number; readonly ms: readonly number[] }
}

/** Connections that open sessions; each stream has its own connection. */
const CONNECTIONS = 32

const AT_A_TIME = 32

const NO_TEXT = () => undefined

let pools: Pool[] = []
let streams: Stream[] = []
let deaf: ReturnType<typeof connect>[] = []
let sessions: Session[] = []
let lastId = 0

process.on('message', (order: AgentsOrder) => {
  const from = systemClock.now()
  obey(order).then(
    (report) => process.send?.({ tookMs: systemClock.now() - from, ...report }),
    (error: unknown) => process.send?.({ tookMs: systemClock.now() - from, failure: String(error) }),
  )
})

async function obey(order: AgentsOrder): Promise<Partial<AgentsReport>> {
  switch (order.kind) {
    case 'open':
      await open(order)
      return {}
    case 'hold':
      await hold(order)
      return {}
    case 'watch':
      await watch(order)
      return {}
    case 'lag':
      await Promise.all([arrivalsAt(order.via, order.how, via), arrivalsAt(order.direct, order.how, direct)])
      return {}
    case 'lags':
      return { lag: lagOf() }
    case 'deaf':
      await beDeaf(order)
      return {}
    case 'steady':
      return { latencies: await steady(order) }
    case 'list':
      return { listed: await list(order) }
    case 'leave':
      await leave()
      return {}
  }
}

function poolOf(url: string, connections: number | null): { pool: Pool; path: string } {
  const { origin, pathname, search } = new URL(url)
  const pool = new Pool(origin, { connections, headersTimeout: 0, bodyTimeout: 0 })
  pools.push(pool)
  return { pool, path: pathname + search }
}

async function repeat(count: number, task: (index: number) => Promise<void>): Promise<void> {
  let begun = 0
  const worker = async () => {
    while (begun < count) await task(begun++)
  }
  await Promise.all(Array.from({ length: Math.min(count, AT_A_TIME) }, worker))
}

async function open({ url, count, tools, listens }: Extract<AgentsOrder, { kind: 'open' }>): Promise<void> {
  const { pool, path } = poolOf(url, listens === true ? null : CONNECTIONS)
  await repeat(count, async () => {
    const session = await Session.open(pool, path, tools[0] ?? '', 'legacy')
    sessions.push(session)
    for (const tool of tools) await session.call(++lastId, tool, `call ${lastId}`, '')
    if (listens === true) streams.push(await session.listen(NO_TEXT))
  })
}

async function hold(order: Extract<AgentsOrder, { kind: 'hold' }>): Promise<void> {
  const { pool, path } = poolOf(order.url, null)
  const own = await opened(pool, path, order.tool, order.sessions)
  for (let index = 0; index < order.count; index++) {
    const text = `held ${++lastId}`
    // Ends when the server answers, or with its connection.
    own[index % own.length]!.call(lastId, order.tool, text, '').catch(NO_TEXT)
    if (index % AT_A_TIME === 0) await systemClock.sleep(1, new AbortController().signal)
  }
}

async function watch({ url, tool, count }: Extract<AgentsOrder, { kind: 'watch' }>): Promise<void> {
  const { pool, path } = poolOf(url, null)
  const own = await opened(pool, path, tool, Math.ceil(count / 100))
  await repeat(count, async (index) => {
    streams.push(await own[index % own.length]!.watch(++lastId, tool, NO_TEXT))
  })
}

async function opened(pool: Pool, path: string, tool: string, count: number): Promise<Session[]> {
  const own: Session[] = []
  await repeat(count, async () => void own.push(await Session.open(pool, path, tool, 'legacy')))
  sessions.push(...own)
  return own
}

/** Read times of events, by their write time. */
const direct = new Map<string, bigint>()
const via = new Map<string, bigint>()

async function arrivalsAt({ url, tool }: Spot, how: 'call' | 'listen', arrivals: typeof via): Promise<void> {
  arrivals.clear()
  const { pool, path } = poolOf(url, null)
  const session = await Session.open(pool, path, 'echo', 'legacy')
  sessions.push(session)
  // An event may arrive in parts: its time is in the first part; only a complete event counts.
  let left = ''
  const take = (text: string) => {
    const now = process.hrtime.bigint()
    const events = (left + text).split('\n\n')
    left = events.pop() ?? ''
    for (const event of events) {
      const [, stamp] = /at (\d+);/.exec(event) ?? []
      if (stamp !== undefined) arrivals.set(stamp, now)
    }
  }
  streams.push(await (how === 'call' ? session.watch(++lastId, tool, take) : session.listen(take)))
}

function lagOf(): Lag {
  const stamps = [...direct.keys()].filter((stamp) => via.has(stamp))
  const [p50, p99] = [0.5, 0.99]
  const quantiles = (msOf: (stamp: string) => number): [number, number] => {
    const sorted = Float64Array.from(stamps, msOf).sort()
    return [quantile(sorted, p50), quantile(sorted, p99)]
  }
  const ms = (from: bigint, to: bigint) => Number(to - from) / 1e6
  return {
    events: stamps.length,
    direct: quantiles((stamp) => ms(BigInt(stamp), direct.get(stamp)!)),
    via: quantiles((stamp) => ms(BigInt(stamp), via.get(stamp)!)),
    added: quantiles((stamp) => ms(direct.get(stamp)!, via.get(stamp)!)),
  }
}

async function steady(order: Extract<AgentsOrder, { kind: 'steady' }>): Promise<number[]> {
  const { pool, path } = poolOf(order.url, null)
  const session = await Session.open(pool, path, order.tool, 'legacy')
  const took: Promise<number>[] = []
  const until = systemClock.now() + order.forMs
  for (let due = systemClock.now(); due < until; due += order.everyMs) {
    const from = due
    const called = session.call(++lastId, order.tool, `call ${lastId}`, '')
    const tookMs = called.then(() => systemClock.now() - from)
    // Failures are reported when all calls are over.
    tookMs.catch(NO_TEXT)
    took.push(tookMs)
    const pauseMs = due + order.everyMs - systemClock.now()
    await (pauseMs > 0 ? systemClock.sleep(pauseMs, new AbortController().signal) : undefined)
  }
  const sorted = Float64Array.from(await Promise.all(took)).sort()
  await session.close()
  return [...sorted]
}

/** Requests a stream over a separate connection that is never read. */
async function beDeaf({ url, tool, how }: Extract<AgentsOrder, { kind: 'deaf' }>): Promise<void> {
  const { pool, path } = poolOf(url, 1)
  const session = await Session.open(pool, path, tool, 'legacy')
  sessions.push(session)
  // Creates the session with the server to listen to.
  if (how === 'listen') await session.call(++lastId, 'echo', `call ${lastId}`, '')
  const { hostname, port, host } = new URL(url)
  const socket = connect(Number(port), hostname)
  socket.on('error', NO_TEXT)
  socket.pause()
  deaf.push(socket)
  socket.write(session.raw(how === 'call' ? { id: ++lastId, tool } : undefined, host))
}

async function list({ url, tool, times }: Extract<AgentsOrder, { kind: 'list' }>) {
  const { pool, path } = poolOf(url, 1)
  const session = await Session.open(pool, path, tool, 'legacy')
  const ms: number[] = []
  let tools = 0
  for (let time = 0; time < times; time++) {
    const from = systemClock.now()
    tools = await session.list()
    ms.push(systemClock.now() - from)
  }
  await session.close()
  return { tools, ms }
}

async function leave(): Promise<void> {
  for (const stream of streams) stream.cancel()
  for (const socket of deaf) socket.destroy()
  const open = sessions
  ;[streams, deaf, sessions] = [[], [], []]
  await repeat(open.length, (index) => open[index]!.close().catch(NO_TEXT))
  await Promise.all(pools.map((pool) => pool.destroy()))
  pools = []
}
