/** Measures every subject in one run and prints the costs; see README.md. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { cpus, tmpdir } from 'node:os'
import { join } from 'node:path'
import { systemClock } from '../src/mesh/clock.ts'
import { Children } from './children.ts'
import { script, startMiddle } from './middle.ts'
import { readOptions } from './options.ts'
import { profiling, profilerNow, selfTimes } from './profile.ts'
import { overBounds, summarise, table } from './report.ts'
import { measureRounds, warmUp } from './rounds.ts'
import type { Row, RunningRow } from './rounds.ts'

/** A start that takes longer for a row counts as hanging and fails, in milliseconds. */
const LIMIT_MS = 60_000

process.once('uncaughtException', fail)
const options = readOptions(process.argv.slice(2))
const scratch = mkdtempSync(join(tmpdir(), 'breakwater-bench-'))
process.once('exit', () => rmSync(scratch, { recursive: true, force: true }))
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.once(signal, () => process.exit(1))
const limitMs = LIMIT_MS * options.subjects.length * options.starts
systemClock.after(limitMs, () => fail(new Error(`not done after ${limitMs / 60_000} min`)))

/** Start of profiles: the gateway is warm from here on. */
let since = 0
const rows: Row[] = options.subjects.map((subject) => ({ subject, rounds: [] }))
for (let left = options.starts; left > 0; left--)
  await measureProcesses(Math.ceil((options.rounds - (rows[0]?.rounds.length ?? 0)) / left))

/** Starts all processes, measures `rounds` rounds, and ends all processes. */
async function measureProcesses(rounds: number): Promise<void> {
  const children = new Children(fail)
  const load = children.fork(script('./load.js'))
  const { reply, fill } = options.workload
  const upstream = await children.listening([
    script('./upstream.js'),
    '--reply',
    reply,
    '--fill',
    String(fill),
  ])
  const collector = await children.listening([script('./collector.js')])
  const around = {
    children,
    upstream: upstream.origin,
    collector: collector.origin,
    scratch,
    flags: (name: string) => (options.profile ? profiling(scratch, name) : []),
  }
  const running: RunningRow[] = []
  for (const row of rows) running.push({ ...row, endpoint: await startMiddle(row.subject, around) })
  await warmUp(load, running, options)
  since = profilerNow()
  await measureRounds(load, running, rounds, options)
  await children.end()
}

const { base } = options
const summaries = summarise(rows, base)
const machine = { node: process.version, cpus: cpus().length, cpu: cpus()[0]?.model ?? 'unknown' }
const rounds = rows[0]?.rounds.length ?? 0
const { calls } = options.workload
print(`${machine.node} on ${machine.cpus} × ${machine.cpu}; workload ${options.workloadName}:`)
print(
  `${rounds} rounds of ${calls} calls by ${options.callers} callers, processes started ${options.starts} times, every payload checked\n`,
)
print(table(summaries, base))
if (options.json !== undefined) {
  const figures = { ...machine, workload: options.workloadName, callers: options.callers, calls, summaries }
  writeFileSync(options.json, JSON.stringify(figures, undefined, 2))
}
if (options.profile) {
  for (const { name, title, cpuMicrosPerCall } of summaries) {
    if (cpuMicrosPerCall === undefined) continue
    print(
      `\n${title}: self time a call, by origin and by file\n${selfTimes(scratch, name, since, cpuMicrosPerCall.median)}`,
    )
  }
}

const over = overBounds(summaries, options.bounds)
for (const line of over) process.stderr.write(`${line}\n`)
process.exitCode = over.length === 0 ? 0 : 1

function print(text: string): void {
  process.stdout.write(`${text}\n`)
}

/** The only exit after a failure; exiting ends the children. */
function fail(error: Error): never {
  process.stderr.write(`${error.message}\n`)
  process.exit(1)
}
