import type { Millis } from '../../mesh/clock.ts'
import type { Tally } from './meter.ts'
import type { SampledFigures, SampleRow } from './record.ts'

/** Limit for the number of rows. Beyond the limit, two rows become one. */
const MAX_ROWS = 600

interface Sample {
  readonly row: SampleRow
  readonly tallies: Readonly<Record<string, Tally>>
}

/**
 * The sample rows of a run. A row covers a second at first, and two, four or more seconds in long runs. Each counted
 * call is in one row.
 */
export class Samples {
  /** Length of a row in a stage or in the recovery, in milliseconds. */
  everyMs: Millis = 1_000
  #all: Sample[] = []

  get rows(): readonly SampleRow[] {
    return this.#all.map(({ row }) => row)
  }

  add(at: Omit<SampleRow, 'arms'>, tallies: Sample['tallies']): void {
    this.#all.push({ row: rowOf(at, tallies), tallies })
    if (this.#all.length <= MAX_ROWS) return
    // In the baseline, each new row covers a second: thresholds are learned from whole seconds.
    if (at.phase !== 'baseline') this.everyMs *= 2
    this.#all = joinedByTwos(this.#all)
  }
}

/** Joins pairs of rows with the same phase and share. */
function joinedByTwos(samples: readonly Sample[]): Sample[] {
  const joined: Sample[] = []
  let before: Sample | undefined
  for (const { row, tallies } of samples) {
    const isAlike = before?.row.phase === row.phase && before.row.share === row.share
    if (before === undefined || !isAlike) {
      joined.push((before = { row, tallies }))
      continue
    }
    for (const [arm, tally] of Object.entries(before.tallies)) tallies[arm]?.merge(tally)
    const injected = before.row.injected + row.injected
    joined[joined.length - 1] = { row: rowOf({ ...row, injected }, tallies), tallies }
    before = undefined
  }
  return joined
}

function rowOf(
  { atMs, phase, share, injected }: Omit<SampleRow, 'arms'>,
  tallies: Readonly<Record<string, Tally>>,
): SampleRow {
  const arms = Object.entries(tallies).map(([arm, tally]) => [arm, sampledFiguresOf(tally)] as const)
  return { atMs, phase, share, injected, arms: Object.fromEntries(arms) }
}

function sampledFiguresOf(tally: Tally): SampledFigures {
  const { calls, failed, rejections, p50, p95 } = tally.figures()
  const { begun, retries } = tally
  return { calls, failed, begun, retries, rejections, p50, p95 }
}
