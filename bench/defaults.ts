/**
 * The study `defaults` live: agents over real sockets through a gateway in a process of its own, to a server process that is ill in each
 * way. Compares no policies (but the deadline) with the defaults, run by run, and fails where the defaults fail more tasks.
 */
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { cpus, tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { Pool } from 'undici'
import { systemClock } from '../src/mesh/clock.ts'
import { policies } from '../src/policies/index.ts'
import { Children } from './children.ts'
import { grow, pause } from './growth-gateway.ts'
import type { Illness } from './ill-server.ts'
import { script } from './middle.ts'
import { Session } from './session.ts'

/** A way to be ill: what happens when, in seconds from the beginning. */
interface Row {
  readonly name: string
  readonly lengthS: number
  readonly changes: readonly (readonly [atS: number, illness: Illness])[]
}

const ill = (name: string, illness: Illness, forS: number, lengthS = forS + 8): Row => ({
  name,
  lengthS,
  changes: [
    [2, illness],
    [2 + forS, { is: 'well' }],
  ],
})

const rows: readonly Row[] = [
  ill('resets 0.4 s', { is: 'resets' }, 0.4),
  ill('resets 2 s', { is: 'resets' }, 2),
  ill('away 1 s', { is: 'away' }, 1),
  ill('away 5 s', { is: 'away' }, 5),
  ill('away 15 s', { is: 'away' }, 15),
  {
    name: 'away 2 s of 4 s',
    lengthS: 22,
    changes: Array.from(
      { length: 8 },
      (_, nth) => [2 + 2 * nth, { is: nth % 2 === 0 ? 'away' : 'well' }] as const,
    ),
  },
  ill('10 % errors', { is: 'fails', rate: 0.1 }, 10),
  ill('30 % errors', { is: 'fails', rate: 0.3 }, 10),
  ill('only errors 1 s', { is: 'fails', rate: 1 }, 1),
  ill('20 times slower', { is: 'slow', times: 20 }, 10),
  ill('hangs 10 s', { is: 'hangs' }, 10, 75),
  ill('HTTP 429 3 s', { is: 'limits', retryAfterS: 1 }, 3),
]

const CALLS = 5
const THINK_MS = 300
const CALL_MS = 30

const { values } = parseArgs({
  options: {
    runs: { type: 'string', default: '1' },
    agents: { type: 'string', default: '8' },
    only: { type: 'string', multiple: true },
  },
})
const [runs, agents] = [Number(values.runs), Number(values.agents)]
const chosen = rows.filter(({ name }) => values.only === undefined || values.only.includes(name))
if (chosen.length === 0) throw new Error(`--only: expected one of ${rows.map(({ name }) => name).join(', ')}`)

const none = Object.fromEntries(Object.keys(policies).map((name) => [name, name === 'deadline' && {}]))
const sets = { none, default: {} }

const scratch = mkdtempSync(join(tmpdir(), 'breakwater-defaults-'))
process.once('exit', () => rmSync(scratch, { recursive: true, force: true }))
const fail = (error: Error) => {
  console.error(`bench: ${error.message}`)
  process.exit(1)
}

console.log(
  `${process.version} on ${cpus().length} × ${cpus()[0]?.model ?? 'unknown'}, ${agents} agents, runs: ${runs}\n`,
)
console.log(
  ['server', 'policies', 'tasks failed', 'attempts/call', 'last failure after', 'p50', 'p95', 'twice'].join(
    ' | ',
  ),
)
let broken = 0
for (const row of chosen) {
  const failed: Record<string, number> = {}
  for (const [name, defaults] of Object.entries(sets)) {
    const all: Awaited<ReturnType<typeof play>>[] = []
    for (let nth = 0; nth < runs; nth++) all.push(await play(row, defaults))
    const sum = (of: (one: Awaited<ReturnType<typeof play>>) => number) =>
      all.reduce((total, one) => total + of(one), 0)
    failed[name] = sum(({ failedTasks }) => failedTasks) / sum(({ tasks }) => tasks)
    const took = all.flatMap(({ took }) => took).sort((a, b) => a - b)
    const at = (p: number) => `${(took[Math.floor(took.length * p)] ?? NaN).toFixed(0)} ms`
    console.log(
      [
        row.name,
        name,
        `${(100 * failed[name]).toFixed(1)} % of ${sum(({ tasks }) => tasks)}`,
        (sum(({ attempts }) => attempts) / sum(({ calls }) => calls)).toFixed(3),
        `${(sum(({ wellAfterS }) => wellAfterS) / runs).toFixed(1)} s`,
        at(0.5),
        at(0.95),
        sum(({ twice }) => twice),
      ].join(' | '),
    )
  }
  if (failed.default! > failed.none!) broken++
}
if (broken > 0) console.log(`\nin ${broken} rows the defaults fail more tasks than no policies`)
process.exitCode = broken > 0 ? 1 : 0

async function play(row: Row, defaults: object) {
  const children = new Children(fail)
  const server = await children.listening([script('./ill-server.js')], { channel: true })
  const effect = [{ match: { server: 'ill' }, effect: 'read_only' }]
  const gateway = await grow(children, scratch, {
    name: 'defaults',
    blocks: {
      mcpServers: { ill: { url: `${server.origin}/mcp`, era: 'modern', health: false } },
      policies: { defaults, overrides: effect },
    },
  })
  const tell = async (message: Illness | 'counts') => {
    server.child.send(message)
    const [answer] = (await once(server.child, 'message')) as [{ calls: number; twice: number }]
    return answer
  }
  const pool = new Pool(gateway.origin, { connections: agents })
  const began = systemClock.now()
  let [tasks, failedTasks, calls, lastFailedAt] = [0, 0, 0, -Infinity]
  const took: number[] = []

  async function work(agent: number): Promise<void> {
    const session = await Session.open(pool, '/mcp/ill', 'echo', 'modern')
    const taskMs = CALLS * (CALL_MS + THINK_MS) * 1.15
    // The number of tasks is the same, however long they take.
    for (let task = 0; task < Math.floor((row.lengthS * 1_000) / taskMs); task++) {
      const waitMs = began + (task + agent / agents) * taskMs - systemClock.now()
      if (waitMs > 0) await pause(waitMs)
      let isWell = true
      for (let step = 0; step < CALLS && isWell; step++) {
        const since = systemClock.now()
        calls++
        try {
          await session.call(agent * 1_000_000 + task * 10 + step, 'echo', `${agent}/${task}/${step}`, '')
          took.push(systemClock.now() - since)
          await pause(THINK_MS * (0.5 + Math.random()))
        } catch {
          isWell = false
          lastFailedAt = systemClock.now()
        }
      }
      tasks++
      if (!isWell) failedTasks++
    }
  }

  const changing = (async () => {
    for (const [atS, illness] of row.changes) {
      await pause(Math.max(0, began + atS * 1_000 - systemClock.now()))
      await tell(illness)
    }
  })()
  await Promise.all([changing, ...Array.from({ length: agents }, (_, agent) => work(agent))])
  const counts = await tell('counts')
  await pool.destroy()
  const endS = row.changes.at(-1)![0]
  const wellAfterS = Math.max(0, (lastFailedAt - began) / 1_000 - endS)
  await children.end()
  return { tasks, failedTasks, calls, attempts: counts.calls, twice: counts.twice, took, wellAfterS }
}
