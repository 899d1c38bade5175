import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { systemClock } from '../src/mesh/clock.ts'
import type { Figures, Order, Report } from './load.ts'
import type { Endpoint } from './middle.ts'
import type { Options } from './options.ts'
import type { Subject } from './subjects.ts'

/** Measurements of a subject, one entry per round. */
export interface Row {
  readonly subject: Subject
  readonly rounds: Figures[]
}

export interface RunningRow extends Row {
  readonly endpoint: Endpoint
}

/**
 * Discarded windows of each row before the first round, and their time limit for each row in milliseconds: by then a
 * process has compiled most of its code. Later compiling by V8 is 2 to 3 % of a gateway's CPU.
 */
const WARM_UP_WINDOWS = 10
const WARM_UP_MS = 10_000

/** After this time, over all starts, no further round begins. */
const ROUNDS_WITHIN_MS = 90_000

/** Measures and discards windows of each row, in the later order, so that no row is idle longer than another. */
export async function warmUp(
  load: ChildProcess,
  rows: readonly RunningRow[],
  options: Options,
): Promise<void> {
  const until = systemClock.now() + WARM_UP_MS * rows.length
  for (let window = 0; window < WARM_UP_WINDOWS && systemClock.now() < until; window++)
    for (const row of beginningAt(window, rows)) await measure(load, row, options)
}

/**
 * Measures `rounds` rounds. All rows take turns: a machine that slows down or speeds up affects all rows, and many
 * short rounds compare better than few long ones. Each round begins with the next row.
 */
export async function measureRounds(
  load: ChildProcess,
  rows: readonly RunningRow[],
  rounds: number,
  options: Options,
): Promise<void> {
  const begunAt = systemClock.now()
  for (let round = 0; round < rounds; round++) {
    for (const row of beginningAt(round, rows)) row.rounds.push(await measure(load, row, options))
    if (systemClock.now() - begunAt > ROUNDS_WITHIN_MS / options.starts) return
  }
}

/**
 * Returns the rows in the order of a round. Over the rounds each row has each place equally often, because the place
 * changes a row's CPU by up to a fifth.
 */
export function beginningAt<Row>(round: number, rows: readonly Row[]): readonly Row[] {
  const first = round % rows.length
  return [...rows.slice(first), ...rows.slice(0, first)]
}

async function measure(
  load: ChildProcess,
  { subject, endpoint }: RunningRow,
  options: Options,
): Promise<Figures> {
  const order: Order = {
    url: endpoint.origin + subject.path,
    tool: subject.tool,
    era: subject.era,
    fill: options.workload.fill,
    callers: options.callers,
    warmUp: options.workload.calls / 10,
    calls: options.workload.calls,
    pid: endpoint.pid,
  }
  load.send(order)
  const [report] = (await once(load, 'message')) as [Report]
  if ('failure' in report) throw new Error(`${subject.title}: ${report.failure}`)
  return report.figures
}
