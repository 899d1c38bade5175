/**
 * Soaks a gateway in mixed traffic, reloads, crashes and faults. Compares the outcome of every call with the servers'
 * records and the gateway's counts. Exits with 0 when all of them agree and nothing has grown, else with 1.
 *
 * npm run soak -- [--minutes N] [--seed N]
 */
import { setTimeout } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { Agent, setGlobalDispatcher } from 'undici'
import { cleanUp, Gateway, newFolder } from '../e2e/support/gateway.ts'
import { seeded } from '../support/random.ts'
import { until } from '../support/until.ts'
import { agent, type Traffic } from './agents.ts'
import { configOf } from './config.ts'
import { Fleet } from './fleet.ts'
import { type Footprint, footprintOf, slopeOf } from './footprint.ts'
import { AccessLines, settle } from './ledger.ts'

const AGENTS = { legacy: 6, modern: 4 }
const RELOAD_MS = 10_000

/** Longest time of a reload, in milliseconds: on a shared machine a reload may wait for its turn. */
const RELOADED_MS = 60_000

/** Time from the end of one crash to the next, and downtime of a server, in milliseconds. */
const CRASH_MS = 4_000
const AWAY_MS = 1_000

/** Minimum number of footprints in the second half, and their maximum interval in milliseconds. */
const SAMPLES = 20
const SAMPLE_MS = 5_000

/** Time until agents close idle connections, in milliseconds. */
const IDLE_MS = 2_000

/** Time for the gateway to release everything, in milliseconds; includes keep-alive and idle sessions. */
const QUIET_MS = 60_000

/**
 * Heap growth allowed over the second half, as a share of the heap in use. Applies only if the slope's interval lies
 * above 0.
 */
const GROWTH = 0.02

/** The run's own sockets to the control plane come and go. */
const SPARE_HANDLES = 4

const MIB = 1024 ** 2

const { minutes, seed } = readOptions()

/** Returns the command line's options; prints an error and exits when they are invalid. */
function readOptions(): { readonly minutes: number; readonly seed: number } {
  try {
    const { values } = parseArgs({
      options: { minutes: { type: 'string', default: '10' }, seed: { type: 'string', default: '1' } },
    })
    const [minutes, seed] = [Number(values.minutes), Number(values.seed)]
    if (!(minutes >= 0.1 && minutes <= 10_000)) throw new Error('--minutes: expected 0.1 to 10000')
    if (!Number.isInteger(seed)) throw new Error('--seed: expected an integer')
    return { minutes, seed }
  } catch (error) {
    console.error((error as Error).message)
    process.exit(1)
  }
}

// Agents close idle connections, so a connection left at the end belongs to the gateway.
setGlobalDispatcher(new Agent({ keepAliveTimeout: IDLE_MS, keepAliveMaxTimeout: IDLE_MS }))

const stop = new AbortController()
for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const)
  process.on(name, () => (stop.signal.aborted ? process.exit(130) : stop.abort()))

let isGood = false
try {
  isGood = await soak()
} finally {
  await cleanUp()
}
process.exit(isGood ? 0 : 1)

/** Waits; returns whether the run should continue. */
async function pause(ms: number): Promise<boolean> {
  await setTimeout(ms, undefined, { signal: stop.signal }).catch(() => undefined)
  return !stop.signal.aborted
}

async function soak(): Promise<boolean> {
  const random = seeded(seed)
  const fleet = await Fleet.start(await newFolder())
  const probe = fileURLToPath(new URL('../fixtures/heap-probe.js', import.meta.url))
  const gateway = await Gateway.start(configOf(fleet, 0), {
    nodeArgs: ['--expose-gc', '--import', probe],
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
  })
  await gateway.waitFor('up', ...Fleet.names)
  const began = performance.now()
  const elapsedS = () => (performance.now() - began) / 1_000
  const before = await footprintOf(gateway, 0)

  const access = new AccessLines()
  const readLog = () => gateway.program.lines.splice(0).forEach((line) => access.add(line))
  const traffic: Traffic = {
    url: (server) => gateway.mcp(server),
    sendings: [],
    lists: { answered: 0, failed: 0 },
    sessions: { opened: 0, refused: 0 },
    isOver: false,
  }
  const seedOf = () => Math.floor(random() * 2 ** 31)
  const agents = (['legacy', 'modern'] as const).flatMap((era) =>
    Array.from({ length: AGENTS[era] }, (_, index) => agent(`${era}-${index}`, era, seedOf(), traffic)),
  )
  let [turn, asked] = [0, 0]
  const reload = async () => {
    await gateway.reconfigure(configOf(fleet, turn))
    // Rearming resets the faults' counters by arguments, which would otherwise count for hours.
    await gateway.post('/admin/chaos/disarm')
    await gateway.post('/admin/chaos/arm')
    asked++
    await until(
      'the reload takes effect',
      () => {
        readLog()
        return access.reloads === asked || !gateway.program.isRunning
      },
      RELOADED_MS,
    )
  }
  const reloading = (async () => {
    while ((await pause(RELOAD_MS)) && !traffic.isOver) {
      turn++
      await reload()
    }
  })()
  const crashing = (async () => {
    while ((await pause(CRASH_MS)) && !traffic.isOver)
      await fleet.crashOne(random, gateway.program.pid, () => setTimeout(AWAY_MS))
  })()
  const samples: Footprint[] = []
  const everyMs = Math.min(SAMPLE_MS, (minutes * 60_000) / SAMPLES / 2)
  while (elapsedS() < minutes * 60 && (await pause(everyMs))) {
    readLog()
    if (!gateway.program.isRunning) break
    samples.push(await footprintOf(gateway, elapsedS()))
  }
  const lasted = elapsedS()
  traffic.isOver = true
  await Promise.all([...agents, reloading, crashing])
  if (!gateway.program.isRunning) {
    process.stdout.write(`the gateway has ended by itself: ${gateway.program.lines.slice(-5).join('\n')}\n`)
    return false
  }
  const experiment = await gateway.admin<{ state: string }>('/admin/experiments/soak')
  const faults = await gateway.sums('breakwater_faults_injected_total', 'type', '')
  // Restores the config of the first footprint.
  turn += turn % 2 === 0 ? 2 : 1
  await reload()

  let after = before
  const isBack = await until(
    'the gateway has released everything',
    async () => {
      after = await footprintOf(gateway, elapsedS())
      const underWay = Object.keys(await gateway.sums('breakwater_inflight', 'server', ''))
      return (
        underWay.length === 0 &&
        after.sessions === 0 &&
        after.handles <= before.handles + SPARE_HANDLES &&
        after.processes <= before.processes
      )
    },
    QUIET_MS,
  ).then(
    () => true,
    () => false,
  )
  const counts = await gateway.sums('breakwater_tool_calls_total', 'result', '')
  gateway.program.signal('SIGTERM')
  const ending = await gateway.program.ended
  readLog()

  const account = settle(traffic.sendings, fleet.runs(), { lines: access.lines, counts })
  const half = samples.filter(({ atS }) => atS >= lasted / 2)
  const inUse = half.reduce((sum, { heapBytes }) => sum + heapBytes, 0) / half.length
  const slope = slopeOf(half.map(({ atS, heapBytes }) => [atS, heapBytes]))
  const grewBy = (slope.estimate * lasted) / 2 / inUse
  const isLevel = slope.low <= 0 || grewBy < GROWTH

  const say = (what: string, ...rest: unknown[]) =>
    process.stdout.write(`${what.padEnd(28)} ${rest.map(String).join(' ')}\n`)
  const sums = (record: Readonly<Record<string, number>>) =>
    Object.entries(record)
      .map(([name, count]) => `${name} ${count}`)
      .join(', ') || 'none'
  const mib = (bytes: number) => (bytes / MIB).toFixed(1)
  say('lasted', `${lasted.toFixed(0)} s, seed ${seed}`)
  say('calls sent', account.sent, `(${(account.sent / lasted).toFixed(0)} a second)`)
  say('told to agents', sums(account.told))
  say('counted by the gateway', sums(counts))
  say('lists', sums(traffic.lists))
  say('sessions', sums(traffic.sessions))
  say('reloads', access.reloads)
  say('server processes killed', fleet.crashes)
  say('faults injected', sums(faults))
  say('experiment', experiment.body.state)
  const row = (of: (sample: Footprint) => number) => evenly(samples).map((one) => mib(of(one)))
  say('heap in use, MiB', row(({ heapBytes }) => heapBytes).join(' → '))
  say('machine code, MiB', row(({ codeBytes }) => codeBytes).join(' → '))
  say(
    'heap slope, KiB a minute',
    `${kib(slope.estimate)} (95 %: ${kib(slope.low)} to ${kib(slope.high)}), ${(grewBy * 100).toFixed(1)} % over the second half`,
  )
  say('resident, MiB', mib(samples[0]?.residentBytes ?? 0), '→', mib(samples.at(-1)?.residentBytes ?? 0))
  for (const what of ['handles', 'processes', 'sessions'] as const) {
    const most = Math.max(...samples.map((sample) => sample[what]))
    say(what, `${before[what]} before, at most ${most}, ${after[what]} after`)
  }
  const problems = [
    ...account.unaccounted.map((text) => `unaccounted: ${text}`),
    ...account.writesTwice.map((text) => `written twice: ${text}`),
    ...access.defects.map((text) => `defect: ${text}`),
    ...(isLevel ? [] : ['the heap grew']),
    ...(isBack ? [] : ['handles, processes, sessions or calls are left over']),
    ...(ending.code === 0 ? [] : [`the gateway ended with ${ending.code ?? ending.signal}`]),
    ...(experiment.body.state === 'running' ? [] : [`the experiment is ${experiment.body.state}`]),
  ]
  for (const problem of problems.slice(0, 20)) say('PROBLEM', problem)
  say('unaccounted', account.unaccounted.length)
  say('written twice', account.writesTwice.length)
  say('verdict', problems.length === 0 ? 'good' : `bad: ${problems.length} problems`)
  return problems.length === 0
}

function kib(bytesPerSecond: number): string {
  return ((bytesPerSecond * 60) / 1024).toFixed(1)
}

/** Returns six samples, evenly spread. */
function evenly(samples: readonly Footprint[]): readonly Footprint[] {
  const at = Array.from({ length: 6 }, (_, index) => Math.round((index * (samples.length - 1)) / 5))
  return at.flatMap((index) => samples[index] ?? [])
}
