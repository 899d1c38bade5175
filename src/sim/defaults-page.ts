import { defaultsStudy } from './studies/defaults.ts'
import type { Findings } from './studies/study.ts'
import { textOf } from './studies/text.ts'
import { heatMap, standalone } from './pictures.ts'

/** Number of runs per cell on the page about the defaults. */
export const SEEDS = 2

/** The command whose output the page shows. */
export const DEFAULTS = `study defaults --seeds ${SEEDS}`

/** Returns the output of the command. */
export const defaultsText = (findings: Findings): string =>
  textOf({ name: 'defaults', about: defaultsStudy.about, seed: 1, seeds: SEEDS, ...findings })
    .replace(/[ ]+$/gm, '')
    .trim()

/** Returns the pictures of the page, by path under `docs`. */
export const defaultsPictures = (findings: Findings): Readonly<Record<string, string>> => ({
  'defaults/sets.svg': tableMap(findings, 'sets'),
  'defaults/overload.svg': tableMap(findings, 'overload'),
  'defaults/ill.svg': tableMap(findings, 'ill', { most: TWICE }),
  'defaults/loads.svg': tableMap(findings, 'loads', {
    title: 'Tasks failed by default, by load',
    across: 'loads',
    only: ' default',
  }),
})

/** The value of the darkest colour: two attempts per call. */
const TWICE = 2

interface Drawn {
  /** Title of the picture. Default: the title of the table. */
  readonly title?: string
  readonly across?: string
  /** Suffix of the drawn columns' keys; labels omit the suffix. Default: all columns. */
  readonly only?: string
  readonly most?: number
}

function tableMap({ tables }: Findings, name: string, drawn: Drawn = {}): string {
  const { title, rows, columns } = tables.find((table) => table.name === name)!
  const { across = 'policies', only = '', most } = drawn
  const [what, ...numbers] = columns.map(({ key }) => key)
  const keys = numbers.filter((key) => key.endsWith(only))
  const picture = heatMap({
    title: drawn.title ?? title,
    rows: rows.map((row) => String(row[what!])),
    columns: keys.map((key) => key.slice(0, key.length - only.length)),
    across,
    value: (row, column) => Number(rows[row]![keys[column]!]),
    ...(most !== undefined && { most }),
  })
  return standalone(picture)
}
