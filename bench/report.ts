import type { Figures } from './load.ts'
import type { Row } from './rounds.ts'
import { spread } from './statistics.ts'
import type { Spread } from './statistics.ts'

export interface Summary {
  readonly name: string
  readonly title: string
  readonly callsPerSecond: Spread
  readonly p50Ms: Spread
  readonly p99Ms: Spread
  readonly cpuMicrosPerCall?: Spread
  readonly busy?: Spread
  /** CPU per call over the base's of the same round. */
  readonly timesBase?: Spread
  readonly rounds: readonly Figures[]
}

/** `base` is the name of the reference row; without this row there are no ratios. */
export function summarise(rows: readonly Row[], base: string): Summary[] {
  const compared = rows.find(({ subject }) => subject.name === base)?.rounds
  return rows.map(({ subject: { name, title }, rounds }) => {
    const over = (read: (figures: Figures) => number) => spread(rounds.map(read))
    const summary = {
      name,
      title,
      callsPerSecond: over((figures) => figures.callsPerSecond),
      p50Ms: over((figures) => figures.p50Ms),
      p99Ms: over((figures) => figures.p99Ms),
    }
    const cpu = rounds.map((figures) => figures.cpuMicrosPerCall ?? NaN)
    if (cpu.some(Number.isNaN)) return { ...summary, rounds }
    const cost = { cpuMicrosPerCall: spread(cpu), busy: over((figures) => figures.busy ?? NaN) }
    if (compared === undefined) return { ...summary, ...cost, rounds }
    const ratios = cpu.map((micros, round) => micros / (compared[round]?.cpuMicrosPerCall ?? NaN))
    return { ...summary, ...cost, timesBase: spread(ratios), rounds }
  })
}

/**
 * Returns a line for each row above its bound. Three quarters of the rounds have to be above: other work on the machine
 * makes single rounds costly without a regression.
 */
export function overBounds(summaries: readonly Summary[], bounds: ReadonlyMap<string, number>): string[] {
  return [...bounds].flatMap(([name, bound]) => {
    const ratio = summaries.find((row) => row.name === name)?.timesBase
    if (ratio === undefined) return [`${name} was not measured against the base`]
    if (ratio.lower <= bound) return []
    const [lower, median] = [ratio.lower.toFixed(2), ratio.median.toFixed(2)]
    return [
      `${name} costs ${median} times the base (at least ${lower} in three of four rounds): above its bound ${bound}`,
    ]
  })
}

/** The table for people: medians over the rounds, and in brackets the quartiles. */
export function table(summaries: readonly Summary[], base: string): string {
  const head = ['', 'calls/s', 'p50 ms', 'p99 ms', 'CPU µs/call', '', `× ${base}`, '', 'busy']
  const lines = [
    head,
    ...summaries.map((row) => [
      row.title,
      row.callsPerSecond.median.toFixed(0),
      row.p50Ms.median.toFixed(2),
      row.p99Ms.median.toFixed(2),
      ...withRange(row.cpuMicrosPerCall, 1),
      ...withRange(row.timesBase, 2),
      row.busy === undefined ? '–' : `${(row.busy.median * 100).toFixed(0)} %`,
    ]),
  ]
  const widths = head.map((_, column) => Math.max(...lines.map((line) => line[column]?.length ?? 0)))
  const pad = (cell: string, column: number) =>
    column === 0 ? cell.padEnd(widths[column] ?? 0) : cell.padStart(widths[column] ?? 0)
  return lines.map((line) => line.map(pad).join('  ')).join('\n')
}

function withRange(value: Spread | undefined, digits: number): [string, string] {
  if (value === undefined) return ['–', '']
  return [value.median.toFixed(digits), `(${value.lower.toFixed(digits)}–${value.upper.toFixed(digits)})`]
}
