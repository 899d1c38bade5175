/** Measures the CPU cost of probes to a gateway of many servers; see README.md. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { systemClock } from '../src/mesh/clock.ts'
import { duration } from '../src/units/duration.ts'
import { Children, type Listening } from './children.ts'
import { cpuMicros } from './cpu.ts'
import { script } from './middle.ts'

/** Limit of probes' CPU, as a share of a core. */
const MOST = 0.02

/** Time beyond the measurement after which a run counts as hanging and fails, in milliseconds. */
const SLACK_MS = 180_000

const { values } = parseArgs({
  options: {
    servers: { type: 'string', default: '1000' },
    every: { type: 'string', default: '60s' },
    window: { type: 'string', default: '120s' },
  },
})
const count = Number(values.servers)
if (!Number.isInteger(count) || count < 1 || count > 2_000) throw new Error('--servers: expected 1 to 2000')
const windowMs = duration({ min: 1_000, max: 300_000 }).parse(values.window)
duration({ min: 1_000 }).parse(values.every)

const { signal } = new AbortController()
const scratch = mkdtempSync(join(tmpdir(), 'breakwater-probes-'))
process.once('exit', () => rmSync(scratch, { recursive: true, force: true }))
for (const name of ['SIGTERM', 'SIGINT', 'SIGHUP']) process.once(name, () => process.exit(1))
process.once('uncaughtException', fail)
systemClock.after(windowMs + SLACK_MS, () => fail(new Error('not done in time')))
const children = new Children(fail)
const upstream = await children.listening([script('./upstream.js')])

/** Starts a gateway with many servers, and waits until all servers are up. */
async function startGateway(name: string, health: unknown): Promise<Listening> {
  const servers = Array.from({ length: count }, (_, index) => [
    `s${index}`,
    { url: `${upstream.origin}/mcp/${index}`, era: 'legacy', refresh: '1d', health },
  ])
  const file = join(scratch, `${name}.json`)
  writeFileSync(
    file,
    JSON.stringify({
      gateway: { listen: '127.0.0.1:0', control: '127.0.0.1:0', ready: 'all' },
      mcpServers: Object.fromEntries(servers) as object,
    }),
  )
  const gateway = await children.listening([script('../dist/main.js'), 'start', '--config', file])
  while (!(await fetch(`${gateway.origin}/readyz`)).ok) await systemClock.sleep(500, signal)
  return gateway
}

const tool = { name: 'echo', arguments: { text: 'probe' }, expect: 'probe' }
const kinds = {
  'no probes': false,
  pings: { every: values.every },
  'pings and a tool': { every: values.every, tool },
}
const gateways: (readonly [string, Listening])[] = []
for (const [name, health] of Object.entries(kinds)) gateways.push([name, await startGateway(name, health)])
// Waits until the work of the start is done.
await systemClock.sleep(5_000, signal)

// Measures all gateways at the same time, so that other work on the machine affects all alike.
const from = systemClock.now()
const before = gateways.map(([, { pid }]) => cpuMicros(pid))
await systemClock.sleep(windowMs, signal)
const tookMs = systemClock.now() - from
const shares = gateways.map(([, { pid }], index) => (cpuMicros(pid) - before[index]!) / 1_000 / tookMs)
const [idle = 0] = shares

console.log(
  `${count} servers, a probe of each every ${values.every}, measured for ${Math.round(tookMs / 1_000)} s\n`,
)
let worst = 0
gateways.forEach(([name], index) => {
  const cost = shares[index]! - idle
  worst = Math.max(worst, cost)
  const percent = (share: number) => `${(share * 100).toFixed(2)} %`.padStart(8)
  console.log(`${name.padEnd(18)} ${percent(shares[index]!)} of a core, ${percent(cost)} more than without`)
})
await children.end()
if (worst > MOST) {
  console.log(`\nprobes cost more than ${MOST * 100} % of a core`)
  process.exitCode = 1
}

function fail(error: Error): void {
  console.error(`bench: ${error.message}`)
  process.exit(1)
}
