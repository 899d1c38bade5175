/**
 * The study `defaults`, live: the same rows, played by agents over real sockets through a gateway in its own process,
 * to replicas in their own processes. Compares no policies (except the deadline) with the defaults, and both with the
 * study. Fails if the defaults fail more tasks than no policies, or if live and simulated results differ.
 */
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { cpus, tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { Pool } from 'undici'
import { type Count, newcombeInterval } from '../src/experiments/statistics/proportions.ts'
import { systemClock } from '../src/mesh/clock.ts'
import { policies } from '../src/policies/index.ts'
import { quantile } from '../src/sim/statistics.ts'
import { OFFENCE, type Offenders, type Row, rows } from '../src/sim/studies/defaults/rows.ts'
import { CALLS, type Load, run, SLACK, THINK_MS } from '../src/sim/studies/defaults/run.ts'
import { defaults, none } from '../src/sim/studies/defaults/sets.ts'
import { Children } from './children.ts'
import { grow, pause } from './growth-gateway.ts'
import type { Counts, Order } from './ill-server.ts'
import { script } from './middle.ts'
import { Session } from './session.ts'

/** The tools of a server; all return their text. */
const TOOLS = ['echo', 'search', 'fetch', 'store', 'remove'] as const

/** Measurements of a row's agents, in one run or in all runs. */
interface Measured {
  readonly tasks: number
  readonly failedTasks: number
  readonly calls: number
  readonly attempts: number
  readonly twice: number
  /** Latencies of successful calls, in milliseconds. */
  readonly took: readonly number[]
}

/** Runs of each cell of the study. */
const SEEDS = 20

/** Live and simulated differ if 99.9 % intervals differ by more than this share of the tasks. */
const DIFFERS = { alpha: 0.001, by: 0.02 }

/** The defaults are worse if a one-sided interval of 99 % says so. */
const WORSE_ALPHA = 0.02

const { values } = parseArgs({
  options: {
    runs: { type: 'string', default: '5' },
    agents: { type: 'string', default: '8' },
    calls: { type: 'string', default: 'reads' },
    only: { type: 'string', multiple: true },
    'at-a-time': { type: 'string', default: '16' },
  },
})
const [runs, agents] = [Number(values.runs), Number(values.agents)]
const kinds = ['reads', 'writes', 'keyed writes']
if (!kinds.includes(values.calls)) throw new Error(`--calls: expected one of ${kinds.join(', ')}`)
/** Agents resend a failed write with an idempotency key, as often as SDKs and models do. */
const sends = values.calls === 'keyed writes' ? 3 : 1
const load: Load = { agents, callMs: 30, effect: values.calls === 'reads' ? 'read_only' : 'write' }

const chosen = rows.filter(({ name }) => values.only === undefined || values.only.includes(name))
if (chosen.length === 0) throw new Error(`--only: expected one of ${rows.map(({ name }) => name).join(', ')}`)

const scratch = mkdtempSync(join(tmpdir(), 'breakwater-defaults-'))
process.once('exit', () => rmSync(scratch, { recursive: true, force: true }))
const fail = (error: Error) => {
  console.error(`bench: ${error.message}`)
  process.exit(1)
}

console.log(
  `${process.version} on ${cpus().length} × ${cpus()[0]?.model ?? 'unknown'}: ${agents} agents, ${values.calls}, runs: ${runs}; simulated: ${SEEDS}\n`,
)

/** Each policy set as the study names the set, and as a config block. */
const sets = [
  {
    choice: none,
    written: Object.fromEntries(Object.keys(policies).map((name) => [name, name === 'deadline' && {}])),
  },
  { choice: defaults, written: {} },
]
let gateways = 0
const plays = chosen.flatMap((row) =>
  sets.flatMap(({ choice, written }) => Array.from({ length: runs }, () => ({ row, choice, written }))),
)
const made = new Map<(typeof plays)[number], Measured>()
const waiting = [...plays]
const worker = async () => {
  for (let one = waiting.shift(); one !== undefined; one = waiting.shift())
    made.set(one, await play(one.row, one.written))
}
await Promise.all(Array.from({ length: Number(values['at-a-time']) }, worker))

const head = [
  'server',
  'policies',
  'tasks failed',
  'simulated',
  'attempts/call',
  'simulated',
  'p50',
  'p95',
  'twice',
]
console.log(`| ${head.join(' | ')} |\n| ${head.map(() => '---').join(' | ')} |`)
let twice = 0
const worse: string[] = []
const different: string[] = []
for (const row of chosen) {
  const shares: Count[] = []
  for (const { choice } of sets) {
    const live = plays.flatMap((one) => (one.row === row && one.choice === choice ? made.get(one)! : []))
    const seeds = await Promise.all(
      Array.from({ length: SEEDS }, (_, seed) => run(row, load, choice, seed + 1)),
    )
    const [share, expected] = [failedOf(live), failedOf(seeds)]
    twice += sumOf(live, 'twice') * Number(load.effect === 'write')
    shares.push(share)
    const took = live.flatMap(({ took }) => took)
    const cells = [
      row.name,
      choice.name,
      `${percent(share)} of ${share.units}`,
      percent(expected),
      attemptsOf(live),
      attemptsOf(seeds),
      `${quantile(took, 0.5).toFixed(0)} ms`,
      `${quantile(took, 0.95).toFixed(0)} ms`,
      sumOf(live, 'twice'),
    ]
    console.log(`| ${cells.join(' | ')} |`)
    const { low, high, estimate } = newcombeInterval(expected, share, DIFFERS.alpha)
    // Runs with resends are not compared with the study, whose agents resend nothing.
    if (sends === 1 && (low > 0 || high < 0) && Math.abs(estimate) > DIFFERS.by)
      different.push(`${row.name}, ${choice.name}`)
  }
  if (newcombeInterval(shares[0]!, shares[1]!, WORSE_ALPHA).low > 0) worse.push(row.name)
}
console.log(`\nThe defaults fail more tasks than no policies: ${worse.join('; ') || 'nowhere'}.`)
if (load.effect === 'write') console.log(`Writes that ran twice: ${twice}.`)
console.log(`Live and simulated differ: ${different.join('; ') || 'nowhere'}.`)
process.exitCode = worse.length + different.length + twice > 0 ? 1 : 0

type Sums = Omit<Measured, 'took'>

function sumOf(made: readonly Sums[], key: keyof Sums): number {
  return made.reduce((sum, one) => sum + one[key], 0)
}

function failedOf(made: readonly Sums[]): Count {
  return { successes: sumOf(made, 'failedTasks'), units: sumOf(made, 'tasks') }
}

function percent({ successes, units }: Count): string {
  return `${((100 * successes) / units).toFixed(1)} %`
}

function attemptsOf(made: readonly Sums[]): string {
  return (sumOf(made, 'attempts') / sumOf(made, 'calls')).toFixed(3)
}

async function play(row: Row, written: object): Promise<Measured> {
  const children = new Children(fail)
  const replicas = await Promise.all(
    Array.from({ length: row.replicas ?? 1 }, (_, replica) =>
      children.listening([script('./ill-server.js'), row.name, String(replica)], { channel: true }),
    ),
  )
  const gateway = await grow(children, scratch, {
    name: `gateway-${++gateways}`,
    blocks: {
      mcpServers: {
        ill: { urls: replicas.map(({ origin }) => `${origin}/mcp`), era: 'modern', health: false },
      },
      policies: { defaults: written, overrides: [{ match: { server: 'ill' }, effect: load.effect }] },
    },
  })
  const tell = (order: Order) =>
    Promise.all(
      replicas.map(async ({ child }) => {
        child.send(order)
        return ((await once(child, 'message')) as [Counts])[0]
      }),
    )
  const pool = new Pool(gateway.origin, { connections: agents })
  const callers = await Promise.all(
    Array.from({ length: agents }, () => Session.open(pool, '/mcp/ill', 'echo', 'modern')),
  )
  const crowd = new Pool(gateway.origin)
  const offending = await Promise.all(
    Array.from({ length: row.offenders === undefined ? 0 : (row.offenders.agents ?? agents) }, () =>
      Session.open(crowd, '/mcp/ill', 'echo', 'modern'),
    ),
  )
  let isOver = false
  await tell({ beganAt: systemClock.wall() })
  const began = systemClock.now()
  let [tasks, failedTasks, calls] = [0, 0, 0]
  const took: number[] = []
  const { offenders, callMs = load.callMs } = row
  const taskMs = CALLS * (callMs + THINK_MS) * SLACK
  const tools = TOOLS.slice(0, row.tools ?? 1)

  /** Returns true if a call is answered in the end; its text is its idempotency key. */
  async function isAnswered(caller: Session, tool: string, text: string): Promise<boolean> {
    for (let send = 0; send < sends; send++) {
      try {
        await caller.call(++calls, tool, text, '', sends > 1 ? text : undefined)
        return true
      } catch {
        await pause(THINK_MS)
      }
    }
    return false
  }

  /** Sends bad calls until the other agents are done, or a single bad call. Results do not matter. */
  async function offend(caller: Session, { offend, isElsewhere }: Offenders): Promise<void> {
    const tool = isElsewhere === true ? TOOLS.at(-1)! : TOOLS[0]
    const [fromS, toS] = row.ill
    if (offend === 'once')
      await pause(Math.max(0, began + (fromS + Math.random() * (toS - fromS)) * 1_000 - systemClock.now()))
    for (let nth = 0; !isOver && (nth === 0 || offend !== 'once'); nth++) {
      await pause(offend === 'sometimes' ? 4 * taskMs : THINK_MS)
      calls++
      await caller.call(-calls, tool, OFFENCE, '').catch(() => undefined)
    }
  }

  async function work(caller: Session, agent: number): Promise<void> {
    // The number of tasks is the same, however long tasks take.
    for (let task = 0; task < Math.floor((row.lengthS * 1_000) / taskMs); task++) {
      const waitMs = began + (task + Math.random() * (SLACK - 1)) * taskMs - systemClock.now()
      if (waitMs > 0) await pause(waitMs)
      let isWell = true
      for (let step = 0; step < CALLS && isWell; step++) {
        const since = systemClock.now()
        isWell = await isAnswered(caller, tools[step % tools.length]!, `${agent}/${task}/${step}`)
        if (!isWell) break
        took.push(systemClock.now() - since)
        await pause(THINK_MS * (0.5 + Math.random()))
      }
      tasks++
      if (!isWell) failedTasks++
    }
  }

  for (const caller of offending) void offend(caller, offenders!)
  await Promise.all(callers.map(work))
  isOver = true
  const counts = await tell('counts')
  await Promise.all([pool.destroy(), crowd.destroy()])
  await children.end()
  const [attempts, twice] = [
    counts.reduce((sum, one) => sum + one.calls, 0),
    counts.reduce((sum, one) => sum + one.twice, 0),
  ]
  return { tasks, failedTasks, calls, attempts, twice, took }
}
