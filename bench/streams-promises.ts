import { systemClock } from '../src/mesh/clock.ts'
import { cpuMicros } from './cpu.ts'
import type { Passage } from './event-stamps.ts'
import type { AgentsOrder, Lag } from './growth-agents.ts'
import { metricsOf, pause, residentBytes, type Blocks, type Grown } from './growth-gateway.ts'
import type { Stage } from './growth-stage.ts'
import { quantile } from './statistics.ts'

/** A promise that holds while a figure stays at or below its limit. */
interface Promised {
  readonly says: string
  readonly most: number
  readonly unit: string
  /** `part`: divisor of its counts. */
  readonly measure: (stage: Stage, part: number) => Promise<Found>
}

interface Found {
  readonly value: number
  /** Further figures, in words. */
  readonly more: string
}

const KIB = 1_024
const MIB = KIB ** 2

/** Time until freed memory and closed connections have settled. */
const CALM_MS = 1_500

/** Timed events, and the time between two events, in milliseconds. */
const EVENTS = 800
const EVENT_EVERY_MS = 5

/** Open streams, and events for each stream: first to compile code, then to measure. */
const MANY_STREAMS = 1_000
const WARM_UP_EACH = 3
const EACH = 10

/** Events to all these streams at once: number of bursts, and the limit of a burst in milliseconds. */
const BURSTS = 10
const BURST_MS = 500

/** Opened and closed before the measurement, so that code is compiled and pools exist. */
const WARM_UP = 50

const LONG = '15m'

/** Allows any number of streams at a server, for any time. */
const patient = {
  defaults: {
    deadline: { total: LONG },
    attemptTimeout: { timeout: LONG },
    bulkhead: { concurrent: 10_000, queue: 0 },
  },
}

/** Starts a gateway of servers `s0` and so on; each has every tool, and a stream outside of calls. */
function gatewayOf(stage: Stage, servers = 1, listens = true, stamps = false): Promise<Grown> {
  const entry = (_: unknown, index: number) => {
    const url = stage.server(`s${index}`, { tools: 3, listens })
    return [`s${index}`, { url, era: 'legacy', connections: 4_096, timeouts: { idle: LONG } }] as const
  }
  const blocks: Blocks = {
    mcpServers: Object.fromEntries(Array.from({ length: servers }, entry)),
    policies: patient,
  }
  return stage.grow({ name: 'gateway', blocks, stamps })
}

/** Measures how long the gateway holds an event under many streams, and besides the extra delay through the gateway. */
const lag =
  (how: 'call' | 'listen') =>
  async (stage: Stage, part: number): Promise<Found> => {
    const gateway = await gatewayOf(stage, 1, true, true)
    const url = `${gateway.origin}/mcp/s0`
    const count = Math.ceil(MANY_STREAMS / part)
    const { streams } = await stage.servers({ kind: 'count' })
    await stage.agents(
      how === 'call'
        ? { kind: 'watch', url, tool: 'tick', count }
        : { kind: 'open', url, count, tools: ['echo'], listens: true },
    )
    await stage.until((now) => now.streams >= streams + count, 'streams of the servers')
    await pause(CALM_MS)
    // By now code is compiled, and results have been read.
    await dripped(stage, gateway, { count: count * WARM_UP_EACH, everyMs: 1, each: 1 })
    const many = await dripped(stage, gateway, { count: count * EACH, everyMs: 1, each: 1 })
    const bursts: Passage[] = []
    const cpuBefore = cpuMicros(gateway.pid)
    for (let burst = 0; burst < BURSTS; burst++)
      bursts.push(...(await dripped(stage, gateway, { count: 1, everyMs: BURST_MS, each: count })))
    const perEvent = (cpuMicros(gateway.pid) - cpuBefore) / bursts.length
    await stage.agents({ kind: 'leave' })
    await pause(CALM_MS)
    const { added, direct, via, events } = await endToEnd(stage, url, how, part)
    const alone = await gateway.passages()
    const waited = quantilesOf(many.map(({ waitedMs }) => waitedMs))
    const more = [
      `under ${count} streams, an event each ms: ${told(many)}; ${both(waited)} from the server until they were read`,
      `with one stream: ${told(alone)}`,
      `when ${count} come at once: ${told(bursts)}, ${perEvent.toFixed(0)} µs of CPU for each in all`,
      `end to end with one stream added ${both(added)}; direct ${both(direct)}; via ${both(via)}; ${events} events`,
    ]
    return { value: quantilesOf(many.map(ownMs))[1], more: more.join('\n  ') }
  }

/** How long the gateway itself held the event, without the time in which other processes had the cores. */
const ownMs = ({ insideMs, heldUpMs }: Passage) => insideMs - heldUpMs

function told(passages: readonly Passage[]): string {
  const wall = quantilesOf(passages.map(({ insideMs }) => insideMs))
  return `${both(quantilesOf(passages.map(ownMs)))} (${both(wall)} with waits for a core)`
}

const both = ([p50, p99]: readonly [number, number]) => `p50 ${p50.toFixed(2)}, p99 ${p99.toFixed(2)} ms`

function quantilesOf(values: readonly number[]): readonly [p50: number, p99: number] {
  const sorted = Float64Array.from(values).sort()
  return [quantile(sorted, 0.5), quantile(sorted, 0.99)]
}

/** Listens to the server, directly and through the gateway, for the same events. */
async function endToEnd(stage: Stage, url: string, how: 'call' | 'listen', part: number): Promise<Lag> {
  const { streams } = await stage.servers({ kind: 'count' })
  const direct = { url: stage.server('s0', { tools: 3, listens: true }), tool: 'tick' }
  // A call's events start with its first stream, so no event is sent before both streams exist.
  await stage.agents({ kind: 'lag', direct, via: { url, tool: 'tick' }, how })
  await stage.until((now) => now.streams >= streams + 2, 'streams')
  await stage.servers({ kind: 'beat', count: Math.ceil(EVENTS / part), everyMs: EVENT_EVERY_MS })
  await pause(CALM_MS)
  const { lag: found } = await stage.agents({ kind: 'lags' })
  return found!
}

/** The server sends events to its streams in turn. Returns the events' passages. Throws if events are missing. */
async function dripped(
  stage: Stage,
  gateway: Grown,
  drip: { readonly count: number; readonly everyMs: number; readonly each: number },
): Promise<readonly Passage[]> {
  await stage.servers({ kind: 'drip', ...drip })
  await pause(CALM_MS)
  const passages = await gateway.passages()
  const sent = drip.count * drip.each
  // One stream is the gateway's own, for list changes: the gateway does not forward its events.
  const { streams } = await stage.servers({ kind: 'count' })
  const missing = sent - passages.length
  if (missing > Math.ceil(sent / streams)) throw new Error(`${missing} of ${sent} events never came out`)
  return passages
}

/** Measures the memory of each of many open items, on the heap and outside the heap. */
async function each(
  stage: Stage,
  gateway: Grown,
  count: number,
  orderOf: (count: number) => AgentsOrder,
  perOne: number,
): Promise<Found> {
  const open = async (some: number) => {
    const { streams } = await stage.servers({ kind: 'count' })
    await stage.agents(orderOf(some))
    await stage.until((now) => now.streams >= streams + some * perOne, 'streams of the servers')
    await pause(CALM_MS)
  }
  await open(Math.min(WARM_UP, count))
  await stage.agents({ kind: 'leave' })
  await pause(CALM_MS)
  const before = await gateway.memory()
  await open(count)
  const after = await gateway.memory()
  const resident = (after.resident - before.resident) / KIB / count
  const value = (after.heap - before.heap) / KIB / count
  const more = `${count} at once; heap from ${mib(before.heap)} to ${mib(after.heap)}, RSS ${mib(before.resident)} to ${mib(after.resident)}, which is ${resident.toFixed(1)} KiB each`
  return { value, more }
}

const mib = (bytes: number) => `${(bytes / MIB).toFixed(0)} MiB`

async function watching(stage: Stage, part: number): Promise<Found> {
  const gateway = await gatewayOf(stage)
  const url = `${gateway.origin}/mcp/s0`
  return each(
    stage,
    gateway,
    Math.ceil(1_000 / part),
    (count) => ({ kind: 'watch', url, tool: 'tick', count }),
    1,
  )
}

/** Sessions that listen to several servers. */
const listening =
  (servers: number, most: number) =>
  async (stage: Stage, part: number): Promise<Found> => {
    const gateway = await gatewayOf(stage, servers)
    const isOne = servers === 1
    const url = `${gateway.origin}${isOne ? '/mcp/s0' : '/mcp'}`
    const tools = Array.from({ length: servers }, (_, index) => (isOne ? 'echo' : `s${index}__echo`))
    return each(
      stage,
      gateway,
      Math.ceil(most / part),
      (count) => ({ kind: 'open', url, count, tools, listens: true }),
      servers,
    )
  }

async function idleSessions(stage: Stage, part: number): Promise<Found> {
  const gateway = await gatewayOf(stage, 1, false)
  const before = await gateway.memory()
  const count = Math.ceil(10_000 / part)
  const url = `${gateway.origin}/mcp/s0`
  const { tookMs } = await stage.agents({ kind: 'open', url, count, tools: ['echo'] })
  await pause(CALM_MS)
  // Resident memory before a forced collection: an operator sees no other figure.
  const resident = residentBytes(gateway.pid)
  const after = await gateway.memory()
  const perSession = ((after.heap - before.heap) / KIB / count).toFixed(1)
  const more = `${count} sessions, opened in ${Math.round(tookMs / 1_000)} s; RSS was ${mib(before.resident)} before, is ${mib(after.resident)} after a collection; ${perSession} KiB of heap each`
  return { value: resident / MIB, more }
}

/** Clients that never read, and the bytes sent to each client in steps. Memory is read after each step. */
const DEAF = 10
const STEPS = 20
const STEP = MIB
const PADDING = 16 * KIB

/** Measures the peak memory of a client that never reads. */
const deaf =
  (how: 'call' | 'listen') =>
  async (stage: Stage): Promise<Found> => {
    const gateway = await gatewayOf(stage)
    const url = `${gateway.origin}/mcp/s0`
    await stage.agents({ kind: 'open', url, count: WARM_UP, tools: ['echo'] })
    await stage.agents({ kind: 'leave' })
    const before = await gateway.memory()
    const { streams } = await stage.servers({ kind: 'count' })
    for (let client = 0; client < DEAF; client++) await stage.agents({ kind: 'deaf', url, tool: 'tick', how })
    await stage.until((now) => now.streams >= streams + DEAF, 'streams of the servers')
    const held: number[] = []
    for (let step = 0; step < STEPS; step++) {
      await stage.servers({ kind: 'beat', count: STEP / PADDING, everyMs: 4, padding: PADDING })
      const { heap } = await gateway.memory()
      held.push((heap - before.heap) / MIB / DEAF)
    }
    const after = await gateway.memory()
    const resident = (after.resident - before.resident) / MIB / DEAF
    const more = `${DEAF} clients, ${mib(STEPS * STEP)} sent to each; after each ${mib(STEP)}: ${held.map((each) => each.toFixed(2)).join(' ')}; ${resident.toFixed(2)} MiB of RSS each`
    return { value: Math.max(...held), more }
  }

const MANY_SERVERS = 1_000
const RELOADS = 5
const WINDOW_MS = 4_000

/** Time between two calls, in milliseconds. */
const CALL_EVERY_MS = 5

/** Slightly longer than the cache time of metrics, in milliseconds. */
const METRICS_EVERY_MS = 1_100

async function reloads(stage: Stage, part: number): Promise<Found> {
  const count = Math.ceil(MANY_SERVERS / part)
  const names = Array.from({ length: count }, (_, index) => `s${index}`)
  const servers = Object.fromEntries(
    names.map((name) => [name, { url: stage.server(name), era: 'legacy' }] as const),
  )
  const gateway = await stage.grow({ name: 'gateway', blocks: { mcpServers: servers, policies: patient } })
  const target = { url: `${gateway.origin}/mcp/s0`, tool: 'echo', everyMs: CALL_EVERY_MS }
  await stage.steady({ ...target, forMs: WINDOW_MS })
  let inForceAt = await lastReload(gateway)
  const ratios: number[] = []
  const said: string[] = []
  for (let turn = 0; turn < RELOADS; turn++) {
    const before = await stage.steady({ ...target, forMs: WINDOW_MS })
    const meanwhile = stage.steady({ ...target, forMs: WINDOW_MS })
    const from = systemClock.wall()
    const s0 = { ...servers.s0, timeouts: { discovery: `${11 + turn}s` } }
    gateway.write({ mcpServers: { ...servers, s0 }, policies: patient })
    const during = await meanwhile
    // Read afterwards: writing the metrics of so many servers would disturb timed calls.
    inForceAt = await reloadAfter(gateway, inForceAt)
    const tookMs = inForceAt - from
    if (tookMs > WINDOW_MS)
      throw new Error(`reload: in force after ${tookMs.toFixed(0)} ms, and not in the window`)
    const [p99Before, p99During] = [quantile(before, 0.99), quantile(during, 0.99)]
    ratios.push(p99During / p99Before)
    said.push(
      `${p99Before.toFixed(1)} → ${p99During.toFixed(1)} ms (longest ${during.at(-1)?.toFixed(0)} ms, in force after ${tookMs.toFixed(0)} ms)`,
    )
  }
  const sorted = Float64Array.from(ratios).sort()
  return {
    value: quantile(sorted, 0.5),
    more: `p99 before and during, windows of ${WINDOW_MS / 1_000} s: ${said.join('; ')}; no call failed`,
  }
}

/** Returns the time of a gateway's last reload, in milliseconds of the wall clock. */
async function lastReload(gateway: Grown): Promise<number> {
  const found = /^breakwater_config_reload_timestamp_seconds (\S+)/m.exec(await metricsOf(gateway))
  if (found === null) throw new Error('/metrics: nothing of reloads')
  return Number(found[1]) * 1_000
}

/** Waits for the next reload and returns its time. */
async function reloadAfter(gateway: Grown, before: number): Promise<number> {
  for (;;) {
    const at = await lastReload(gateway)
    if (at !== before) return at
    await pause(METRICS_EVERY_MS)
  }
}

export const promises: Readonly<Record<string, Promised>> = {
  'lag-call': {
    says: 'p99 delay of events of a call in the gateway, under 1,000 streams',
    most: 1,
    unit: 'ms',
    measure: lag('call'),
  },
  'lag-listen': {
    says: 'p99 delay of events outside of calls in the gateway, under 1,000 streams',
    most: 1,
    unit: 'ms',
    measure: lag('listen'),
  },
  watching: {
    says: 'memory of each of 1,000 streaming calls',
    most: 40,
    unit: 'KiB',
    measure: watching,
  },
  listening: {
    says: 'memory of each of 1,000 sessions that listen to a server',
    most: 40,
    unit: 'KiB',
    measure: listening(1, 1_000),
  },
  'listening-to-five': {
    says: 'memory of a session that listens to five servers',
    most: 50,
    unit: 'KiB',
    measure: listening(5, 400),
  },
  idle: {
    says: 'RSS with 10,000 idle sessions',
    most: 300,
    unit: 'MiB',
    measure: idleSessions,
  },
  'deaf-call': {
    says: 'memory for a client that never reads the answer to its call',
    most: 1,
    unit: 'MiB',
    measure: deaf('call'),
  },
  'deaf-listen': {
    says: 'memory for a client that never reads its event stream',
    most: 1,
    unit: 'MiB',
    measure: deaf('listen'),
  },
  reload: {
    says: 'p99 of calls during a reload with 1,000 servers, as a multiple of p99 before',
    most: 2,
    unit: 'times',
    measure: reloads,
  },
}
