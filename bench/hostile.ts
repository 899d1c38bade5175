/** Measures how hostile agents and servers affect a bystander; see README.md. */
import { once } from 'node:events'
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { cpus, setPriority, tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { Pool } from 'undici'
import { systemClock } from '../src/mesh/clock.ts'
import { Children, type Listening } from './children.ts'
import type { AttackOrder, AttackReport } from './hostile-agent.ts'
import { attacks } from './hostile-attacks.ts'
import { script } from './middle.ts'
import { Session } from './session.ts'
import { quantile } from './statistics.ts'

/** A longer run counts as hanging and fails. */
const LIMIT_MS = 590_000

/**
 * Time between two calls of the bystander, in milliseconds. Calls begin on time, whether or not earlier calls are over.
 */
const EVERY_MS = 10

/** Length of an attack, and the rest of the gateway afterwards, in milliseconds. */
const ATTACK_MS = 6_000
const REST_MS = 1_500

/** Limit of the bystander's p99, as a multiple of its p99 during an attack on another gateway. */
const MAX_RATIO = 3

/** A small heap, to bring the gateway into trouble sooner. */
const HEAP_FLAG = '--max-old-space-size=512'

/**
 * Real attackers have their own machines. On shared cores with equal priority, the measurement would show the kernel's
 * scheduler. So attackers get leftover CPU, which is still most of a core.
 */
const LOWEST_PRIORITY = 19

const { signal } = new AbortController()

process.once('uncaughtException', fail)
const { values } = parseArgs({ options: { only: { type: 'string', multiple: true } } })
const chosen = values.only ?? Object.keys(attacks)
for (const name of chosen)
  if (attacks[name] === undefined)
    throw new Error(`--only: expected one of ${Object.keys(attacks).join(', ')}`)

const scratch = mkdtempSync(join(tmpdir(), 'breakwater-hostile-'))
process.once('exit', () => rmSync(scratch, { recursive: true, force: true }))
for (const name of ['SIGTERM', 'SIGINT', 'SIGHUP']) process.once(name, () => process.exit(1))
systemClock.after(LIMIT_MS, () => fail(new Error(`not done after ${LIMIT_MS / 1_000} s`)))

const children = new Children(fail)

/** A gateway with a well-behaved server and a hostile server. */
async function startGateway(name: string): Promise<Listening> {
  const [quiet, hostile] = await Promise.all(
    ['./upstream.js', './hostile-server.js'].map((server) => children.listening([script(server)])),
  )
  setPriority(hostile!.pid, LOWEST_PRIORITY)
  const config = {
    gateway: { listen: '127.0.0.1:0', control: '127.0.0.1:0', environment: 'test' },
    policies: { overrides: [{ match: { tool: 'limited' }, rateLimit: { rate: '1/m', burst: 1 } }] },
    mcpServers: { quiet: { url: `${quiet!.origin}/mcp` }, hostile: { url: `${hostile!.origin}/mcp` } },
  }
  const file = join(scratch, `${name}.json`)
  writeFileSync(file, JSON.stringify(config))
  const started = await children.listening([HEAP_FLAG, script('../dist/main.js'), 'start', '--config', file])
  while (!(await fetch(`${started.origin}/readyz`)).ok) await systemClock.sleep(50, signal)
  return started
}

const gateway = await startGateway('gateway')
/** The attack hits the first gateway while the bystander calls this twin: its delays come from the machine. */
const twin = await startGateway('twin')

const pool = new Pool(gateway.origin, { connections: 64 })
const bystander = await Session.open(pool, '/mcp/quiet', 'echo', 'legacy')
let lastId = 0

/** Makes calls on time until `until` is over. Returns their durations, sorted, in milliseconds. */
async function callsDuring(until: Promise<unknown>): Promise<Float64Array> {
  let over = false
  void until.then(() => (over = true))
  const took: Promise<number>[] = []
  for (let due = systemClock.now(); !over; due += EVERY_MS) {
    const from = due
    took.push(bystander.call(++lastId, 'echo', `call ${lastId}`, '').then(() => systemClock.now() - from))
    const pauseMs = due + EVERY_MS - systemClock.now()
    await (pauseMs > 0 ? systemClock.sleep(pauseMs, signal) : undefined)
  }
  return Float64Array.from(await Promise.all(took)).sort()
}

const quietly = () => callsDuring(systemClock.sleep(ATTACK_MS, signal))

async function attacked(attack: string, { origin }: Listening): Promise<[Float64Array, AttackReport]> {
  agent.send({ attack, origin, forMs: ATTACK_MS } satisfies AttackOrder)
  const over = once(agent, 'message') as Promise<[AttackReport]>
  const took = await callsDuring(over)
  return [took, (await over)[0]]
}

const memoryMb = () =>
  Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${gateway.pid}/status`, 'latin1'))?.[1]) / 1024
const handles = () => readdirSync(`/proc/${gateway.pid}/fd`).length

const agent = children.fork(script('./hostile-agent.js'))
await quietly()
const handlesBefore = handles()
const [p50, p99] = await quietly().then((took) => [quantile(took, 0.5), quantile(took, 0.99)] as const)

print(`${process.version} on ${cpus().length} × ${cpus()[0]?.model ?? 'unknown'}; ${HEAP_FLAG}`)
print(`a bystander calls every ${EVERY_MS} ms; quiet: p50 ${p50.toFixed(1)} ms, p99 ${p99.toFixed(1)} ms\n`)
print(row(['attack', 'p50 ms', 'p99 ms', '× quiet', '× twin', 'max ms', 'times', 'RSS MB', 'outcomes']))
const worse: string[] = []
for (const name of chosen) {
  const [elsewhere] = await attacked(name, twin)
  await systemClock.sleep(REST_MS, signal)
  const [took, { times, outcomes }] = await attacked(name, gateway)
  const p99Now = quantile(took, 0.99)
  const ratio = p99Now / Math.max(p99, quantile(elsewhere, 0.99))
  if (ratio > MAX_RATIO) worse.push(name)
  const figures = [quantile(took, 0.5), p99Now, p99Now / p99, ratio, took.at(-1) ?? NaN]
  const said = Object.entries(outcomes).map(([outcome, count]) => `${outcome} × ${count}`)
  const cells = figures.map((figure) => figure.toFixed(1))
  print(row([name, ...cells, String(times), memoryMb().toFixed(0), said.join(', ')]))
  await systemClock.sleep(REST_MS, signal)
}
await pool.destroy()
print(`\nhandles before ${handlesBefore}, now ${handles()}; no call of the bystander failed`)
if (worse.length > 0) print(`p99 above ${MAX_RATIO} × twin: ${worse.join('; ')}`)
await children.end()
process.exitCode = worse.length > 0 ? 1 : 0

function row([name = '', ...cells]: readonly string[]): string {
  return name.padEnd(28) + cells.map((cell, at) => (at < 7 ? cell.padStart(8) : `  ${cell}`)).join('')
}

function print(text: string): void {
  process.stdout.write(`${text}\n`)
}

/** The only exit after a failure; exiting ends the children. */
function fail(error: Error): never {
  process.stderr.write(`${error.message}\n`)
  process.exit(1)
}
