import { spread, type Spread } from '../statistics.ts'
import type { Figures } from './load.ts'
import type { CellResult, RowResult } from './results.ts'

/** A row in figures, each the spread over the rounds. Figures that the row lacks, or did not hold, are undefined. */
export interface Line {
  readonly row: RowResult
  readonly callsPerSecond: Spread
  readonly cpuMicrosPerCall: Spread | undefined
  /** CPU per call over the base's of the same round. */
  readonly timesBase: Spread | undefined
  /** CPU per call less the base's of the same round, in microseconds. */
  readonly moreMicros: Spread | undefined
  /** From a call's due time to its answer, in milliseconds. */
  readonly p50Ms: Spread | undefined
  readonly p99Ms: Spread | undefined
  /** The same, less the direct way's latency in the same round. */
  readonly addedP50Ms: Spread | undefined
  readonly addedP99Ms: Spread | undefined
  readonly rssBytes: Spread | undefined
}

/** `base` is the reference row for CPU, `direct` for latencies. */
export function summarise({ rows }: CellResult, base = 'floor'): Line[] {
  const roundsOf = (name: string) => rows.find((row) => row.name === name)?.rounds ?? []
  const [baseRounds, directRounds] = [roundsOf(base), roundsOf('direct')]
  return rows.map((row) => {
    const over = (read: (figures: Figures) => number | undefined) => spreadOf(row.rounds.map(read))
    const against = (
      others: readonly Figures[],
      read: (figures: Figures) => number | undefined,
      compare: (own: number, other: number) => number,
    ) =>
      spreadOf(
        row.rounds.map((figures, round) => {
          const [own, other] = [read(figures), others[round] && read(others[round])]
          return own === undefined || other === undefined ? undefined : compare(own, other)
        }),
      )
    const less = (own: number, other: number) => own - other
    return {
      row,
      callsPerSecond: spread(row.rounds.map((figures) => figures.callsPerSecond)),
      cpuMicrosPerCall: over(cpu),
      timesBase: against(baseRounds, cpu, (own, other) => own / other),
      moreMicros: against(baseRounds, cpu, less),
      p50Ms: over(p50),
      p99Ms: over(p99),
      addedP50Ms: row.name === 'direct' ? undefined : against(directRounds, p50, less),
      addedP99Ms: row.name === 'direct' ? undefined : against(directRounds, p99, less),
      rssBytes: over(({ rssBytes }) => rssBytes),
    }
  })
}

const cpu = ({ cpuMicrosPerCall }: Figures) => cpuMicrosPerCall
const p50 = ({ paced }: Figures) => paced?.p50Ms
const p99 = ({ paced }: Figures) => paced?.p99Ms

/** Undefined if any round lacks the figure: a pace held only at times was not held. */
function spreadOf(values: readonly (number | undefined)[]): Spread | undefined {
  const given = values.filter((value) => value !== undefined)
  return given.length === 0 || given.length < values.length ? undefined : spread(given)
}
