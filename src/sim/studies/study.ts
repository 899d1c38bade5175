/** Unit of a column's numbers: a share is a ratio in [0, 1], `times` a factor. Columns without a unit hold text. */
export type Unit = 'share' | 'points' | 'ms' | 's' | 'count' | 'perSecond' | 'times'

export interface Column {
  readonly key: string
  readonly label: string
  readonly unit?: Unit
  /** Text for an absent number. Default: –. */
  readonly absent?: string
}

/** The values of a row, by column key; null for no value. */
export type Row = Readonly<Record<string, string | number | null>>

export interface StudyTable {
  /** Name of the table, unique in its study. */
  readonly name: string
  readonly title: string
  readonly columns: readonly Column[]
  readonly rows: readonly Row[]
  /**
   * Key of a text column. In text output, rows that differ only in this column are shown once, with a list of the other
   * values.
   */
  readonly joins?: string
  /** True if text output omits the table. Default: false. */
  readonly isLong?: boolean
  /** Columns drawn as bars, each in its own picture. */
  readonly bars: readonly string[]
}

export interface StudySeries {
  /** Unique among series and tables of the study. */
  readonly name: string
  readonly title: string
  /** Times of the points, in seconds since the start. */
  readonly atS: readonly number[]
  readonly lines: readonly { readonly name: string; readonly values: readonly number[] }[]
}

/** Findings of a study: plain data, equal for equal options on every machine. */
export interface Findings {
  /** The important numbers of the model with their units, in one or two sentences. */
  readonly model: string
  readonly tables: readonly StudyTable[]
  readonly series: readonly StudySeries[]
  /** Conclusions from the numbers, in sentences. */
  readonly seen: readonly string[]
}

export interface StudyOptions {
  /** Seed of the first run; each further run has the next number. */
  readonly seed: number
  /** Runs of each cell, at least 1. */
  readonly seeds: number
  /** Called with the progress, as a ratio in [0, 1]. */
  readonly onProgress?: (done: number) => void
}

export interface Study {
  readonly about: string
  readonly seeds: number
  run(options: StudyOptions): Promise<Findings>
}

/** Runs each cell with each seed, in order; resolves to the results by cell. */
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
