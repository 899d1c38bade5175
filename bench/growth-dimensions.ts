import { systemClock } from '../src/mesh/clock.ts'
import { cpuMicros } from './cpu.ts'
import { pause, reload, type Blocks, type Grown } from './growth-gateway.ts'
import type { Dimension, Point } from './growth-report.ts'
import type { Stage } from './growth-stage.ts'
import { spread } from './statistics.ts'

export type Measured = (stage: Stage, counts: readonly number[]) => Promise<Dimension>

/** Rest before a gateway's idle CPU is measured, and length of the measurement, in milliseconds. */
const SETTLE_MS = 3_000
const IDLE_MS = 10_000

/** Changes of the config for each point. */
const RELOADS = 3

/** Time within which the gateway notices the changed file and reads the file again, in milliseconds. */
const NOTICED_MS = 2_500

/** Listings over one session. */
const LISTINGS = 10

const KIB = 1_024
const MIB = KIB ** 2

const median = (values: readonly number[]) => spread(values).median

/** A quarter of an hour: longer than any run. */
const LONG = '15m'

/** Allows any number of calls at any speed. */
const patient = {
  defaults: {
    deadline: { total: LONG },
    attemptTimeout: { timeout: LONG },
    bulkhead: { concurrent: 10_000, queue: 0 },
  },
}

/** Returns the idle CPU of several gateways at the same time, as shares of a core. */
async function idle(gateways: readonly Grown[]): Promise<number[]> {
  await pause(SETTLE_MS)
  const from = systemClock.now()
  const before = gateways.map(({ pid }) => cpuMicros(pid))
  await pause(IDLE_MS)
  const tookMs = systemClock.now() - from
  return gateways.map(({ pid }, index) => (cpuMicros(pid) - before[index]!) / 1_000 / tookMs)
}

/** Config entries for servers with separate addresses. */
function entries(stage: Stage, count: number, tools = 1, listens = false): Record<string, object> {
  const entry = (_: unknown, index: number) => {
    const name = `s${index}`
    return [name, { url: stage.server(name, { tools, listens }), era: 'legacy' }] as const
  }
  return Object.fromEntries(Array.from({ length: count }, entry))
}

/** Measures reloads of a config that changes one setting of one server each time. */
async function reloads(
  gateway: Grown,
  servers: Record<string, object>,
): Promise<{ ms: number; cpuMs: number }> {
  const took: number[] = []
  const cpu: number[] = []
  for (let turn = 0; turn < RELOADS; turn++) {
    const s0 = { ...servers.s0, timeouts: { discovery: `${11 + turn}s` } }
    gateway.write({ mcpServers: { ...servers, s0 } })
    const before = cpuMicros(gateway.pid)
    took.push(await reload(gateway))
    await pause(NOTICED_MS)
    // The gateway reloads twice: by request, and because the file changed.
    cpu.push((cpuMicros(gateway.pid) - before) / 1_000 / 2)
  }
  return { ms: median(took), cpuMs: median(cpu) }
}

async function listing(stage: Stage, gateway: Grown, tool: string) {
  const { listed } = await stage.agents({
    kind: 'list',
    url: `${gateway.origin}/mcp`,
    tool,
    times: LISTINGS,
  })
  const { tools, ms } = listed!
  const [first = NaN, ...again] = ms
  return { tools, first, again: median(again) }
}

const servers: Measured = async (stage, counts) => {
  const gateways: Grown[] = []
  for (const count of counts)
    gateways.push(
      await stage.grow({ name: `servers-${count}`, blocks: { mcpServers: entries(stage, count) } }),
    )
  // The last tool on the first page of the list.
  const targets = gateways.map((gateway, index) => ({
    gateway,
    path: '/mcp',
    tool: `s${Math.min(counts[index]!, 500) - 1}__echo`,
  }))
  const idleShares = await idle(gateways)
  const memories = await Promise.all(gateways.map((gateway) => gateway.memory()))
  const costs = await stage.calls(targets)
  const points: Point[] = []
  for (const [index, gateway] of gateways.entries()) {
    const count = counts[index]!
    const list = await listing(stage, gateway, 's0__echo')
    const again = await reloads(gateway, entries(stage, count))
    points.push({
      at: count,
      figures: {
        startMs: gateway.startMs,
        startCpuMs: gateway.startCpuMs,
        residentMib: memories[index]!.resident / MIB,
        heapMib: memories[index]!.heap / MIB,
        firstListMs: list.first,
        listMs: list.again,
        cpuMicros: costs[index]!.cpuMicros,
        timesFirst: costs[index]!.timesFirst,
        reloadMs: again.ms,
        reloadCpuMs: again.cpuMs,
        idlePercent: idleShares[index]! * 100,
      },
    })
  }
  return { name: 'servers', unit: 'servers', points }
}

const TOOLS_PER_SERVER = 1_000

/** Largest number of tools kept of one server. */
const MOST_TOOLS = 10_000

const tools: Measured = async (stage, counts) => {
  const gateways: Grown[] = []
  for (const count of counts) {
    // More tools than the limit are spread over several servers.
    const [many, each] = count > MOST_TOOLS ? [count / TOOLS_PER_SERVER, TOOLS_PER_SERVER] : [1, count]
    gateways.push(
      await stage.grow({ name: `tools-${count}`, blocks: { mcpServers: entries(stage, many, each) } }),
    )
  }
  const memories = await Promise.all(gateways.map((gateway) => gateway.memory()))
  const targets = gateways.map((gateway) => ({ gateway, path: '/mcp', tool: 's0__echo' }))
  const costs = await stage.calls(targets)
  const points: Point[] = []
  for (const [index, gateway] of gateways.entries()) {
    const list = await listing(stage, gateway, 's0__echo')
    points.push({
      at: counts[index]!,
      figures: {
        startMs: gateway.startMs,
        startCpuMs: gateway.startCpuMs,
        residentMib: memories[index]!.resident / MIB,
        heapMib: memories[index]!.heap / MIB,
        listed: list.tools,
        firstListMs: list.first,
        listMs: list.again,
        cpuMicros: costs[index]!.cpuMicros,
        timesFirst: costs[index]!.timesFirst,
      },
    })
  }
  return { name: 'tools', unit: 'tools', points }
}

/** Below this count, the cost of each item disappears in the noise of the process. */
const FEW = 100

const each = (bytes: number, count: number) => (count < FEW ? NaN : bytes / KIB / count)

/** Opens `counts` items with each gateway. Measures memory and the cost of a further item. */
async function opened(
  gateways: readonly Grown[],
  counts: readonly number[],
  open: (gateway: Grown, count: number, index: number) => Promise<number>,
): Promise<Record<string, number>[]> {
  const figures: Record<string, number>[] = []
  for (const [index, gateway] of gateways.entries()) {
    const count = counts[index]!
    const before = await gateway.memory()
    const openMs = await open(gateway, count, index)
    await pause(1_000)
    const after = await gateway.memory()
    figures.push({
      openMs,
      heapKibEach: each(after.heap - before.heap, count),
      residentKibEach: each(after.resident - before.resident, count),
      heapMib: after.heap / MIB,
      residentMib: after.resident / MIB,
    })
  }
  return figures
}

const sessions: Measured = async (stage, counts) => {
  const blocks: Blocks = { mcpServers: entries(stage, 1), policies: patient }
  const gateways: Grown[] = []
  for (const count of counts) gateways.push(await stage.grow({ name: `sessions-${count}`, blocks }))
  const targets = gateways.map((gateway) => ({ gateway, path: '/mcp/s0', tool: 'echo' }))
  await stage.calls(targets, 1)
  const figures = await opened(gateways, counts, async ({ origin }, count) => {
    const order = { kind: 'open', url: `${origin}/mcp/s0`, count, tools: ['echo'] } as const
    return (await stage.agents(order)).tookMs
  })
  const costs = await stage.calls(targets)
  await stage.agents({ kind: 'leave' })
  return { name: 'sessions', unit: 'sessions', points: pointsOf(counts, figures, costs) }
}

/** Servers that a session on the aggregate listens to. */
const LISTENED_TO = 5

const listening: Measured = async (stage, counts) => {
  const blocks: Blocks = { mcpServers: entries(stage, LISTENED_TO, 1, true), policies: patient }
  const gateways: Grown[] = []
  for (const count of counts) gateways.push(await stage.grow({ name: `listening-${count}`, blocks }))
  const targets = gateways.map((gateway) => ({ gateway, path: '/mcp', tool: 's0__echo' }))
  await stage.calls(targets, 1)
  const names = Array.from({ length: LISTENED_TO }, (_, index) => `s${index}__echo`)
  const figures = await opened(gateways, counts, async ({ origin }, count) => {
    const { streams } = await stage.servers({ kind: 'count' })
    const order = { kind: 'open', url: `${origin}/mcp`, count, tools: names, listens: true } as const
    const { tookMs } = await stage.agents(order)
    await stage.until((now) => now.streams >= streams + count * LISTENED_TO, 'streams of the servers')
    return tookMs
  })
  const costs = await stage.calls(targets)
  await stage.agents({ kind: 'leave' })
  return { name: 'listening', unit: 'listening sessions', points: pointsOf(counts, figures, costs) }
}

/** Servers for slow calls, because a server has at most 4,096 connections. */
const SLOW_SERVERS = 2

/** Calls under way of one session. */
const CALLS_OF_A_SESSION = 100

const calls: Measured = async (stage, counts) => {
  const quick = { url: stage.server('quick'), era: 'legacy' }
  const slow = Array.from({ length: SLOW_SERVERS }, (_, index) => {
    const url = stage.server(`slow${index}`, { tools: 2 })
    return [`slow${index}`, { url, era: 'legacy', connections: 4_096, timeouts: { idle: LONG } }] as const
  })
  const blocks: Blocks = { mcpServers: { quick, ...Object.fromEntries(slow) }, policies: patient }
  const gateways: Grown[] = []
  for (const count of counts) gateways.push(await stage.grow({ name: `calls-${count}`, blocks }))
  const targets = gateways.map((gateway) => ({ gateway, path: '/mcp/quick', tool: 'echo' }))
  await stage.calls(targets, 1)
  const figures = await opened(gateways, counts, async ({ origin }, count) => {
    const { held } = await stage.servers({ kind: 'count' })
    let tookMs = 0
    for (let index = 0; index < SLOW_SERVERS; index++) {
      const share = Math.floor(count / SLOW_SERVERS) + (index < count % SLOW_SERVERS ? 1 : 0)
      if (share === 0) continue
      const url = `${origin}/mcp/slow${index}`
      const sessions = Math.ceil(share / CALLS_OF_A_SESSION)
      tookMs += (await stage.agents({ kind: 'hold', url, tool: 'hold', count: share, sessions })).tookMs
    }
    await stage.until((now) => now.held >= held + count, 'calls under way')
    return tookMs
  })
  const costs = await stage.calls(targets)
  await stage.servers({ kind: 'release' })
  await stage.agents({ kind: 'leave' })
  return { name: 'calls', unit: 'calls under way', points: pointsOf(counts, figures, costs) }
}

function pointsOf(
  counts: readonly number[],
  figures: readonly Record<string, number>[],
  costs: readonly { cpuMicros: number; timesFirst: number; p50Ms: number; p99Ms: number }[],
): Point[] {
  return counts.map((at, index) => ({ at, figures: { ...figures[index]!, ...costs[index]! } }))
}

export const dimensions: Readonly<
  Record<string, { readonly measure: Measured; readonly counts: readonly number[] }>
> = {
  servers: { measure: servers, counts: [1, 10, 100, 1_000] },
  tools: { measure: tools, counts: [1, 100, 1_000, 10_000, 20_000] },
  sessions: { measure: sessions, counts: [1, 100, 1_000, 10_000] },
  listening: { measure: listening, counts: [1, 10, 100, 1_000] },
  calls: { measure: calls, counts: [1, 100, 1_000, 5_000] },
}
