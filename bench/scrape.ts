/** Measures the duration of a scrape of 500 tools, and how long the scrape delays other work; see README.md. */
import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { cpus, tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { systemClock } from '../src/mesh/clock.ts'
import { Children } from './children.ts'
import { cpuMicros } from './cpu.ts'
import { script } from './middle.ts'
import { startProbed } from './scrape-gateway.ts'
import type { Order } from './scrape-load.ts'
import { firstLine, table, type Part } from './scrape-report.ts'
import { results, toolNames } from './scrape-tools.ts'
import { kinds, Scraper, type Kind, type Seen } from './scrape-window.ts'

/** A longer run counts as hanging and fails. */
const LIMIT_MS = 180_000

/** Discarded scrapes before the measurement. */
const WARM_UP = 10

/** Time of calls before the measurement, in which breakers opened by the filling close again. */
const SETTLE_MS = 2_000

process.once('uncaughtException', fail)
const { values } = parseArgs({
  options: {
    scrapes: { type: 'string', default: '60' },
    calls: { type: 'string', default: '1000' },
    'cpu-prof': { type: 'string' },
  },
})
const [scrapes, perSecond] = [Number(values.scrapes), Number(values.calls)]
if (!(scrapes >= 1 && scrapes <= 200)) throw new Error('--scrapes: expected a number from 1 to 200')
if (!(perSecond >= 1 && perSecond <= 10_000)) throw new Error('--calls: expected a number from 1 to 10000')

const scratch = mkdtempSync(join(tmpdir(), 'breakwater-scrape-'))
process.once('exit', () => rmSync(scratch, { recursive: true, force: true }))
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.once(signal, () => process.exit(1))
systemClock.after(LIMIT_MS, () => fail(new Error(`not done after ${LIMIT_MS / 1_000} s`)))

const children = new Children(fail)
const upstream = await children.listening([script('./scrape-upstream.js')])
const flags = values['cpu-prof'] === undefined ? [] : ['--cpu-prof', `--cpu-prof-dir=${values['cpu-prof']}`]
const gateway = await startProbed({ upstream: upstream.origin, scratch, flags, lost: fail })
const load = children.fork(script('./scrape-load.js'))
const scraper = new Scraper(gateway)

await tell(load, { fill: gateway.data })
const first = await scraper.window('text')
for (let scrape = 0; scrape < WARM_UP; scrape++) check(await scraper.window(kinds[1 + (scrape % 2)]!))
const idle = await measure('idle')
await tell(load, { perSecond })
await systemClock.sleep(SETTLE_MS, new AbortController().signal)
const loaded = await measure(`${perSecond} calls/s`)
await gateway.end()
await children.end()

print(`${process.version} on ${cpus().length} × ${cpus()[0]?.model ?? 'unknown'};`)
print(`${toolNames.length} tools, ${scrapes} scrapes of each kind\n`)
print(table([idle, loaded]))
print(`\n${firstLine(first)}`)

/** Scrapes each kind in turn, `rounds` times. */
async function measure(title: string): Promise<Part> {
  const seen: Record<Kind, Seen[]> = { nothing: [], text: [], openmetrics: [] }
  const startedAt = systemClock.now()
  const cpuBefore = cpuMicros(gateway.pid)
  for (let round = 0; round < scrapes; round++)
    for (const kind of kinds) seen[kind].push(await scraper.window(kind))
  const busy = (cpuMicros(gateway.pid) - cpuBefore) / 1_000 / (systemClock.now() - startedAt)
  return { title, busy, seen }
}

/** An incomplete scrape would be too cheap. */
function check({ body }: Seen): void {
  for (const result of results) {
    const lines = new RegExp(`^breakwater_tool_calls_total\\{.*result="${result}"`, 'gm')
    const found = body.match(lines)?.length ?? 0
    if (found < toolNames.length) throw new Error(`${result}: series of ${found} tools only`)
  }
}

async function tell(child: ChildProcess, order: Order): Promise<void> {
  child.send(order)
  await once(child, 'message')
}

function print(text: string): void {
  process.stdout.write(`${text}\n`)
}

/** The only exit after a failure; exiting ends the children. */
function fail(error: Error): never {
  process.stderr.write(`${error.message}\n`)
  process.exit(1)
}
