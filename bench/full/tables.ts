import type { Spread } from '../statistics.ts'
import { provenance, type CellResult, type LeftOut, type Results } from './results.ts'
import { summarise, type Line } from './summary.ts'

/** A table: cells of its head, then of each line; the first column is to the left, the others to the right. */
interface Table {
  readonly head: readonly string[]
  readonly lines: readonly (readonly string[])[]
}

const NOTHING = '–'
const MIB = 1024 ** 2

/** All tables of a run in Markdown, with where and how it was measured. */
export function markdown(results: Results): string {
  const { cells, leftOut } = results
  const [first, ...others] = cells.filter(({ name }) => name !== 'policies')
  const policies = cells.find(({ name }) => name === 'policies')
  const parts = [
    `Measured on ${provenance(results).replace(/: (?=npm|node)/, ' by `')}\`. Medians over the rounds; in brackets the quartiles.`,
    ...(first === undefined ? [] : section(first)),
    ...(others.length === 0 ? [] : ['### CPU over all cells', ratioNote, inMarkdown(ratios(results))]),
    ...others.flatMap(section),
    ...(policies === undefined
      ? []
      : [`### ${policies.title}`, policyNote(policies), inMarkdown(policyTable(policies))]),
    ...(leftOut.length === 0 ? [] : ['### Left out', leftOut.map(leftOutLine).join('\n')]),
  ]
  return parts.join('\n\n')
}

const ratioNote = 'CPU of a call over that of the byte proxy, round by round.'
const policyNote = ({ rows }: CellResult) =>
  `Everything is off but that policy; ${rows[0]?.rounds.length ?? 0} rounds at the load of the base.`

function section(cell: CellResult): string[] {
  return [`### ${cell.title}`, paceNote(cell), inMarkdown(cellTable(cell)), ...noted(cell)]
}

function noted({ rows }: CellResult): string[] {
  const notes = rows.flatMap(({ title, note }) => (note === undefined ? [] : [`- ${title}: ${note}.`]))
  return notes.length === 0 ? [] : [notes.join('\n')]
}

function paceNote(cell: CellResult): string {
  const rounds = `${cell.rows[0]?.rounds.length ?? 0} rounds.`
  const direct = summarise(cell).find(({ row }) => row.name === 'direct')
  if (cell.perSecond === undefined || direct?.p50Ms === undefined || direct.p99Ms === undefined) return rounds
  const [p50, p99] = [direct.p50Ms.median.toFixed(2), direct.p99Ms.median.toFixed(2)]
  return `${rounds} Latencies at ${thousands(cell.perSecond)} calls/s, to which the direct way took ${p50} ms (median) and ${p99} ms (p99).`
}

/** The rows of a cell, whatever it asks of them. */
export function cellTable(cell: CellResult): Table {
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

/** What each policy costs, against none. */
export function policyTable(cell: CellResult): Table {
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

/** CPU over the byte proxy's: a line for each cell, a column for each way that is in more than one of them. */
function ratios({ cells }: Results): Table {
  const summaries = cells
    .filter(({ name }) => name !== 'policies')
    .map((cell) => ({ cell, lines: summarise(cell).filter(isCompared) }))
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

export const leftOutLine = ({ title, cell, why }: LeftOut): string =>
  `- ${title}${cell === undefined ? '' : ` (${cell})`}: ${why.split('\n')[0]}`

const thousands = (value: number) => Math.round(value).toLocaleString('en-US')

function figure(value: Spread | undefined, digits: number): string {
  return value === undefined ? NOTHING : withoutMinusZero(value.median.toFixed(digits))
}

function ranged(value: Spread | undefined, digits: number): string {
  if (value === undefined) return NOTHING
  const [median, lower, upper] = [value.median, value.lower, value.upper].map((part) =>
    withoutMinusZero(part.toFixed(digits)),
  )
  return `${median} (${lower}–${upper})`
}

const withoutMinusZero = (text: string) => (/^-[0.]+$/.test(text) ? text.slice(1) : text)

/** As prettier leaves it. */
export function inMarkdown({ head, lines }: Table): string {
  const widths = widthsOf([head, ...lines])
  const row = (cells: readonly string[]) => `| ${padded(cells, widths).join(' | ')} |`
  const rule = widths.map((width, column) => (column === 0 ? '-'.repeat(width) : `${'-'.repeat(width - 1)}:`))
  return [row(head), `| ${rule.join(' | ')} |`, ...lines.map(row)].join('\n')
}

/** For a terminal. */
export function inColumns({ head, lines }: Table): string {
  const widths = widthsOf([head, ...lines])
  return [head, ...lines].map((cells) => padded(cells, widths).join('  ').trimEnd()).join('\n')
}

const widthsOf = (rows: readonly (readonly string[])[]) =>
  (rows[0] ?? []).map((_, column) => Math.max(3, ...rows.map((cells) => cells[column]?.length ?? 0)))

const padded = (cells: readonly string[], widths: readonly number[]) =>
  cells.map((cell, column) => (column === 0 ? cell.padEnd(widths[column]!) : cell.padStart(widths[column]!)))
