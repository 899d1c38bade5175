import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { systemClock } from '../../src/mesh/clock.ts'
import { Children } from '../children.ts'
import { script, type Endpoint } from '../middle.ts'
import { beginningAt } from '../rounds.ts'
import type { Cell } from './cells.ts'
import type { Figures, Order, Report } from './load.ts'
import type { StdioServer } from './rows.ts'
import { paceFor, type Windows } from './plan.ts'
import type { CellResult, LeftOut } from './results.ts'
import type { Around, Way } from './ways.ts'

/** Least number of rounds, even without enough time: fewer rounds prove nothing. */
const LEAST_ROUNDS = 2

interface Row {
  readonly way: Way
  readonly endpoint: Endpoint
  readonly rounds: Figures[]
}

export interface CellRun {
  readonly cell: Cell
  readonly ways: readonly Way[]
  readonly stdio: StdioServer
  readonly scratch: string
  /** Time for all rounds, in milliseconds: no round begins that would end later. */
  readonly budgetMs: number
  readonly windows: Windows
  readonly leaveOut: (row: LeftOut) => void
}

/**
 * Starts all rows of a cell, measures the rows in turn, round after round, and ends the rows. Rejects at the first
 * wrong reply, and when an essential process dies.
 */
export async function measureCell(run: CellRun): Promise<CellResult> {
  let die: (error: Error) => void = () => {}
  const died = new Promise<never>((_, reject) => (die = reject))
  const children = new Children(die)
  try {
    return await Promise.race([measureRows(run, children), died])
  } finally {
    await children.end()
  }
}

async function measureRows(run: CellRun, children: Children): Promise<CellResult> {
  const { cell, budgetMs, windows } = run
  const endsAt = systemClock.now() + budgetMs
  const load = children.fork(script('./full/load.js'))
  let rows = await startAll(run, children)
  const leave = ({ way }: Row, why: string) => {
    rows = rows.filter((row) => row.way !== way)
    run.leaveOut({ title: way.title, cell: cell.name, why })
  }
  let rounds = 0
  /** Measures every row once; removes a failed row if the row may fail. */
  const round = async (order: (row: Row) => Partial<Order>, keep: (row: Row, figures: Figures) => void) => {
    for (const row of beginningAt(rounds++, rows)) {
      const report = await ask(load, { ...orderOf(row, cell, windows), ...order(row) })
      if ('figures' in report) keep(row, report.figures)
      else if (row.way.mayFail) leave(row, report.failure)
      else throw new Error(`${row.way.title}: ${report.failure}`)
    }
  }

  const first = new Map<Way, number>()
  const unmeasured = { warmUpMs: 0, warmUpCalls: windows.firstCalls, saturatedMs: windows.firstMs }
  await round(
    () => unmeasured,
    ({ way }, { callsPerSecond }) => first.set(way, callsPerSecond),
  )
  const oursFirst = rows.filter(({ way }) => way.kind === 'ours').map(({ way }) => first.get(way) ?? 0)
  const pace = cell.paced && oursFirst.length > 0 ? paceFor(oursFirst) : undefined

  let longestMs = 0
  for (let seed = 1; seed <= LEAST_ROUNDS || systemClock.now() + longestMs < endsAt; seed++) {
    const from = systemClock.now()
    await round(
      ({ way }) =>
        pace?.holds(first.get(way) ?? 0) === true
          ? { pace: { perSecond: pace.perSecond, forMs: windows.pacedMs, seed } }
          : {},
      ({ rounds }, figures) => rounds.push(figures),
    )
    longestMs = Math.max(longestMs, systemClock.now() - from)
  }
  return {
    name: cell.name,
    title: cell.title,
    perSecond: pace?.perSecond,
    rows: rows.map(({ way: { name, title, kind, note }, rounds }) => ({
      ...{ name, title, kind, rounds },
      ...(note !== undefined && { note }),
    })),
  }
}

async function startAll(
  { cell, ways, stdio, scratch, leaveOut }: CellRun,
  children: Children,
): Promise<Row[]> {
  const { reply, fill, era } = cell
  const options = ['--reply', reply, '--fill', String(fill), ...(era === 'modern' ? ['--modern'] : [])]
  const upstream = await children.listening([script('./upstream.js'), ...options])
  const collector = await children.listening([script('./collector.js')])
  const rows: Row[] = []
  for (const way of ways) {
    // Also called for a process that ends during a measurement: its calls then fail.
    let lost: (error: Error) => void = () => {}
    const ended = new Promise<never>((_, reject) => (lost = reject))
    ended.catch(() => {})
    const around: Around = {
      ...{ children, scratch, stdio, lost },
      ...{ upstream: upstream.origin, collector: collector.origin, flags: () => [] },
    }
    try {
      rows.push({ way, endpoint: await Promise.race([way.start(around), ended]), rounds: [] })
    } catch (error) {
      if (!way.mayFail) throw error
      leaveOut({ title: way.title, cell: cell.name, why: String(error) })
    }
  }
  return rows
}

function orderOf({ way, endpoint }: Row, cell: Cell, { warmUpMs, saturatedMs }: Windows): Order {
  return {
    url: endpoint.origin + way.path,
    ...{ tool: way.tool, speech: way.speech, pid: endpoint.pid },
    ...{ fill: cell.fill, sessions: cell.sessions },
    ...{ warmUpMs, saturatedMs },
  }
}

async function ask(load: ChildProcess, order: Order): Promise<Report> {
  load.send(order)
  const [report] = (await once(load, 'message')) as [Report]
  return report
}
