/** Measures Breakwater, what it is compared with and gateways of others over a matrix of loads, in one run; see README.md. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { systemClock } from '../../src/mesh/clock.ts'
import { script } from '../middle.ts'
import { measureCell } from './measure.ts'
import { nginxVersion } from './nginx.ts'
import { readOptions, type Options } from './options.ts'
import { checkPage, writePage } from './page.ts'
import { install, peers, type Peer } from './peers.ts'
import { shares } from './plan.ts'
import { provenance, thisMachine, type CellResult, type LeftOut, type Results } from './results.ts'
import { cellTable, inColumns, leftOutLine, policyTable } from './tables.ts'
import { waysOf } from './ways.ts'

/** Rows are started and ended, and rounds that have begun are finished: a run that takes much longer than it was given hangs. */
const SLACK = 1.5
const SLACK_MS = 120_000

process.once('uncaughtException', fail)
const args = process.argv.slice(2)
const options = readOptions(args)
if (options.page !== undefined) checkPage(options.page)
const results =
  options.from === undefined
    ? await measured(options)
    : (JSON.parse(readFileSync(options.from, 'utf8')) as Results)
if (options.from === undefined) process.stdout.write(`${provenance(results)}\n`)
if (options.json !== undefined) writeFileSync(options.json, JSON.stringify(results))
if (options.page !== undefined) writePage(options.page, results)

async function measured({ cells, ways, peers: withPeers, minutes, windows }: Options): Promise<Results> {
  const scratch = mkdtempSync(join(tmpdir(), 'breakwater-bench-'))
  process.once('exit', () => rmSync(scratch, { recursive: true, force: true }))
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.once(signal, () => process.exit(1))

  const leftOut: LeftOut[] = []
  const leaveOut = (row: LeftOut) => {
    leftOut.push(row)
    process.stdout.write(`left out: ${leftOutLine(row).slice(2)}\n`)
  }
  const nginx = await nginxVersion()
  if (nginx === undefined) leaveOut({ title: 'nginx', why: 'not on the PATH' })
  const others = { nginx, peers: withPeers ? await installed(leaveOut) : [] }

  // Only now: what is fetched is not part of the time.
  const limitMs = minutes * 60_000 * SLACK + SLACK_MS
  systemClock.after(limitMs, () => fail(new Error(`not done after ${Math.round(limitMs / 60_000)} min`)))
  const plan = cells.map((cell) => {
    const stdio = {
      command: process.execPath,
      args: [script('./stdio-upstream.js'), '--fill', String(cell.fill)],
    }
    const known = waysOf(cell, others, stdio)
    const isAsked = (name: string) => ways === undefined || ['direct', 'floor', ...ways].includes(name)
    return { cell, stdio, ways: known.filter(({ name }) => isAsked(name)) }
  })
  const parts = shares(
    plan.map(({ cell, ways }) => [cell, ways.length] as const),
    windows,
  )
  const found: CellResult[] = []
  for (const [index, part] of plan.entries()) {
    const budgetMs = parts[index]! * minutes * 60_000
    const result = await measureCell({ ...part, scratch, budgetMs, windows, leaveOut, fail })
    found.push(result)
    const table = result.name === 'policies' ? policyTable(result) : cellTable(result)
    const pace = result.perSecond === undefined ? '' : `, latencies at ${result.perSecond} calls/s`
    process.stdout.write(
      `\n${result.title}; ${result.rows[0]?.rounds.length} rounds${pace}\n\n${inColumns(table)}\n\n`,
    )
  }
  return {
    machine: thisMachine(),
    date: new Date().toISOString().slice(0, 10),
    command: ['npm run bench:full', ...(args.length === 0 ? [] : ['--', ...asked(args)])].join(' '),
    cells: found,
    leftOut,
  }
}

/** Those that can be had. */
async function installed(leaveOut: (row: LeftOut) => void): Promise<Peer[]> {
  const there: Peer[] = []
  for (const peer of peers) {
    try {
      await install(peer)
      there.push(peer)
    } catch (error) {
      leaveOut({ title: `${peer.name} ${peer.version}`, why: String(error) })
    }
  }
  return there
}

/** What was asked for, without where it was to be written. */
function asked(args: readonly string[]): string[] {
  return args.filter(
    (arg, index) => ![arg, args[index - 1]].some((one) => one === '--json' || one === '--page'),
  )
}

/** The one way out after a failure; leaving ends the children. */
function fail(error: Error): never {
  process.stderr.write(`${error.message}\n`)
  process.exit(1)
}
