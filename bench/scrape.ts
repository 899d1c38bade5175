/** Measures what a scrape of 500 tools takes, and for how long it holds up everybody else; see README.md. */
import { mkdtempSync, rmSync } from 'node:fs'
import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { cpus, tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { systemClock } from '../src/mesh/clock.ts'
import { Children } from './children.ts'
import { cpuMicros } from './cpu.ts'
import { script } from './middle.ts'
import { startProbed } from './scrape-gateway.ts'
import type { Order } from './scrape-load.ts'
import { table, type Part } from './scrape-report.ts'
import { results, TOOLS, toolNames } from './scrape-tools.ts'
import { kinds, Scraper, type Kind, type Seen } from './scrape-window.ts'

/** A run that hangs is a failed run. */
const LIMIT_MS = 180_000

/** Scrapes before those that count. */
const WARM_UP = 10

process.once('uncaughtException', fail)
const { values } = parseArgs({
  options: {
    scrapes: { type: 'string', default: '60' },
    'per-second': { type: 'string', default: '1000' },
    profile: { type: 'string' },
  },
})
const scratch = mkdtempSync(join(tmpdir(), 'breakwater-scrape-'))
process.once('exit', () => rmSync(scratch, { recursive: true, force: true }))
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.once(signal, () => process.exit(1))
systemClock.after(LIMIT_MS, () => fail(new Error(`not done after ${LIMIT_MS / 1_000} s`)))

const children = new Children(fail)
const upstream = await children.listening([script('./scrape-upstream.js')])
const profiling = values.profile === undefined ? [] : ['--cpu-prof', `--cpu-prof-dir=${values.profile}`]
const gateway = await startProbed(upstream.origin, scratch, profiling, fail)
const load = children.fork(script('./scrape-load.js'))
const scraper = new Scraper(gateway)

await tell(load, { fill: gateway.data })
for (let i = 0; i < WARM_UP; i++) await scraper.window(i % 2 === 0 ? 'text' : 'openmetrics')
check(await scraper.window('text'))
const idle = await measure('idle')
await tell(load, { perSecond: Number(values['per-second']) })
await systemClock.sleep(2_000, new AbortController().signal)
const loaded = await measure('calls')
await gateway.end()
await children.end()

print(
  `${process.version} on ${cpus().length} × ${cpus()[0]?.model ?? 'unknown'}; ${TOOLS} tools, ${values.scrapes} scrapes of each kind\n`,
)
print(table([idle, loaded]))

/** Asks for each kind in turn, as often as was said. */
async function measure(title: string): Promise<Part> {
  const seen: Record<Kind, Seen[]> = { nothing: [], text: [], openmetrics: [] }
  const startedAt = systemClock.now()
  const cpuBefore = cpuMicros(gateway.pid)
  for (let round = 0; round < Number(values.scrapes); round++)
    for (const what of kinds) seen[what].push(await scraper.window(what))
  const busy = (cpuMicros(gateway.pid) - cpuBefore) / 1_000 / (systemClock.now() - startedAt)
  return { title, busy, seen }
}

/** A scrape in which anything is missing would be too cheap. */
function check({ body }: Seen): void {
  for (const result of results) {
    const found =
      body.match(new RegExp(`^breakwater_tool_calls_total\\{.*result="${result}"`, 'gm'))?.length ?? 0
    if (found < toolNames.length) throw new Error(`series of ${found} tools for ${result}`)
  }
}

async function tell(child: ChildProcess, order: Order): Promise<void> {
  child.send(order)
  await once(child, 'message')
}

function print(text: string): void {
  process.stdout.write(`${text}\n`)
}

/** The one way out after a failure; leaving ends the children. */
function fail(error: Error): never {
  process.stderr.write(`${error.message}\n`)
  process.exit(1)
}
