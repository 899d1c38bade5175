import type { Spread } from '../statistics.ts'
import type { CellResult, LeftOut, Results } from './results.ts'
import { summarise, type Line } from './summary.ts'

/** A table: its head, then its lines; the first column is left-aligned, other columns right-aligned. */
export interface Table {
  readonly head: readonly string[]
  readonly lines: readonly (readonly string[])[]
}

const NOTHING = '–'
const MIB = 1024 ** 2

/** Returns the results of a cell, in the columns for its kind of rows. */
export const tableOf = (cell: CellResult): Table =>
  cell.name === 'policies' ? policyTable(cell) : cellTable(cell)

function cellTable(cell: CellResult): Table {
  return {
    head: ['', 'calls/s', 'CPU µs/call', '× byte proxy', 'added p50 ms', 'added p99 ms', 'memory MiB'],
    lines: summarise(cell).map((line) => [
      line.row.title,
      thousands(line.callsPerSecond.median),
      figure(line.cpuMicrosPerCall, 0),
      ranged(line.timesBase, 2),
      figure(line.addedP50Ms, 2),
      figure(line.addedP99Ms, 2),
      line.rssBytes === undefined ? NOTHING : (line.rssBytes.median / MIB).toFixed(0),
    ]),
  }
}

function policyTable(cell: CellResult): Table {
  return {
    head: ['policy', 'CPU µs/call', '× no policy', 'more µs/call'],
    lines: summarise(cell, 'no-policy')
      .filter(({ row }) => row.kind === 'ours')
      .map((line) => [
        line.row.title,
        figure(line.cpuMicrosPerCall, 1),
        ...(line.row.name === 'no-policy'
          ? [NOTHING, NOTHING]
          : [ranged(line.timesBase, 3), ranged(line.moreMicros, 1)]),
      ]),
  }
}

/** CPU relative to the byte proxy: a line for each cell, a column for each way in more than one cell. */
export function ratiosOver(cells: Results['cells']): Table {
  const summaries = cells.map((cell) => ({ cell, lines: summarise(cell).filter(isCompared) }))
  const seen = summaries.flatMap(({ lines }) => lines.map(({ row }) => row))
  const ways = new Map(
    seen
      .filter(({ name }) => seen.filter((other) => other.name === name).length > 1)
      .map(({ name, title }) => [name, title]),
  )
  const ratio = (lines: readonly Line[], name: string) =>
    figure(lines.find(({ row }) => row.name === name)?.timesBase, 2)
  return {
    head: ['', ...ways.values()],
    lines: summaries.map(({ cell, lines }) => [
      cell.title.split(':')[0] ?? '',
      ...[...ways.keys()].map((name) => ratio(lines, name)),
    ]),
  }
}

const isCompared = ({ row }: Line) => row.name !== 'direct' && row.name !== 'floor'

/** Returns the number of rounds of a cell, and the pace of its latencies. */
export function paceNote(cell: CellResult): string {
  const rounds = `${cell.rows[0]?.rounds.length ?? 0} rounds.`
  const direct = summarise(cell).find(({ row }) => row.name === 'direct')
  if (cell.perSecond === undefined || direct?.p50Ms === undefined || direct.p99Ms === undefined) return rounds
  const [p50, p99] = [direct.p50Ms.median.toFixed(2), direct.p99Ms.median.toFixed(2)]
  return `${rounds} Latencies at ${thousands(cell.perSecond)} calls/s; the direct way took ${p50} ms (median) and ${p99} ms (p99).`
}

export const leftOutLine = ({ title, cell, why }: LeftOut): string =>
  `${title}${cell === undefined ? '' : ` (${cell})`}: ${why.split('\n')[0]}`

const thousands = (value: number) => Math.round(value).toLocaleString('en-US')

function figure(value: Spread | undefined, digits: number): string {
  return value === undefined ? NOTHING : fixed(value.median, digits)
}

function ranged(value: Spread | undefined, digits: number): string {
  if (value === undefined) return NOTHING
  const [median, lower, upper] = [value.median, value.lower, value.upper].map((part) => fixed(part, digits))
  // Before a negative bound, a dash would look like another minus sign.
  return `${median} (${lower}${lower?.startsWith('-') ? ' to ' : '–'}${upper})`
}

/** Drops the sign of a zero. */
const fixed = (value: number, digits: number) => value.toFixed(digits).replace(/^-(?=[0.]+$)/, '')

/** Returns the table as Markdown, in Prettier's format. */
export function inMarkdown({ head, lines }: Table): string {
  const widths = widthsOf([head, ...lines])
  const row = (cells: readonly string[]) => `| ${padded(cells, widths).join(' | ')} |`
  const rule = widths.map((width, column) => (column === 0 ? '-'.repeat(width) : `${'-'.repeat(width - 1)}:`))
  return [row(head), `| ${rule.join(' | ')} |`, ...lines.map(row)].join('\n')
}

export function inColumns({ head, lines }: Table): string {
  const widths = widthsOf([head, ...lines])
  return [head, ...lines].map((cells) => padded(cells, widths).join('  ').trimEnd()).join('\n')
}

const widthsOf = (rows: readonly (readonly string[])[]) =>
  (rows[0] ?? []).map((_, column) => Math.max(3, ...rows.map((cells) => cells[column]?.length ?? 0)))

const padded = (cells: readonly string[], widths: readonly number[]) =>
  cells.map((cell, column) => (column === 0 ? cell.padEnd(widths[column]!) : cell.padStart(widths[column]!)))
