/** Unit of a column's numbers; a share is a ratio in [0, 1], and `times` a factor. Columns without a unit hold text. */
export type Unit = 'share' | 'points' | 'ms' | 's' | 'count' | 'perSecond' | 'times'

export interface Column {
  readonly key: string
  readonly label: string
  readonly unit?: Unit
  /** Text in place of an absent number. Default: –. */
  readonly absent?: string
}

/** By the keys of the columns; null where there is nothing to say. */
export type Row = Readonly<Record<string, string | number | null>>

export interface StudyTable {
  /** Unique in its study. */
  readonly name: string
  readonly title: string
  readonly columns: readonly Column[]
  readonly rows: readonly Row[]
  /** A column of text: people are shown one of the rows that differ in nothing else, and told which the others are. */
  readonly joins?: string
  /** Whether it is left out where people read text. Default: false. */
  readonly isLong?: boolean
  /** Columns that are drawn as bars where there are pictures, each in a picture of its own. */
  readonly bars: readonly string[]
}

/** Lines over time. */
export interface StudySeries {
  /** Unique in its study, and among its tables. */
  readonly name: string
  readonly title: string
  /** In seconds since the beginning. */
  readonly atS: readonly number[]
  readonly lines: readonly { readonly name: string; readonly values: readonly number[] }[]
}

/** Findings of a study: plain data, the same for the same options on every machine. */
export interface Findings {
  /** The numbers of its model that decide, with units, in one sentence or two. */
  readonly model: string
  readonly tables: readonly StudyTable[]
  readonly series: readonly StudySeries[]
  /** Conclusions, in sentences that follow from the numbers. */
  readonly seen: readonly string[]
}

export interface StudyOptions {
  /** Seed of the first run; each further run has the next number. */
  readonly seed: number
  /** Runs of each cell, at least 1. */
  readonly seeds: number
  /** Hears how much of it is done, as a ratio in [0, 1]. */
  readonly onProgress?: (done: number) => void
}

/** A question that simulations answer. */
export interface Study {
  readonly about: string
  /** Runs of each cell unless somebody asks for another number. */
  readonly seeds: number
  run(options: StudyOptions): Promise<Findings>
}

/** Runs each cell with each seed, in this order, and gives what it made of them. */
export async function overSeeds<Cell, Made>(
  cells: readonly Cell[],
  { seed, seeds, onProgress }: StudyOptions,
  run: (cell: Cell, seed: number) => Promise<Made>,
): Promise<(readonly Made[])[]> {
  const all: Made[][] = []
  for (const [at, cell] of cells.entries()) {
    const made: Made[] = []
    for (let nth = 0; nth < seeds; nth++) {
      made.push(await run(cell, seed + nth))
      onProgress?.((at + (nth + 1) / seeds) / cells.length)
    }
    all.push(made)
  }
  return all
}
