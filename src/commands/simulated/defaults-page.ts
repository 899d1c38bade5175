import { defaultsStudy } from '../../sim/studies/defaults.ts'
import type { Findings } from '../../sim/studies/study.ts'
import { textOf } from '../study/text.ts'
import { heatMap, standalone } from './pictures.ts'

/** Runs of each cell on the page about the defaults. */
export const SEEDS = 2

/** The command that the page shows. */
export const DEFAULTS = `study defaults --seeds ${SEEDS}`

/** What that command prints. */
export const defaultsText = (findings: Findings): string =>
  textOf({ name: 'defaults', about: defaultsStudy.about, seed: 1, seeds: SEEDS, ...findings })
    .replace(/[ ]+$/gm, '')
    .trim()

/** The pictures of the page, by their paths under `docs`. */
export const defaultsPictures = (findings: Findings): Readonly<Record<string, string>> =>
  Object.fromEntries(
    ['sets', 'overload'].map((name) => [`defaults/${name}.svg`, standalone(tableMap(findings, name))]),
  )

/** A table of shares as colours: what ails the server by policies. */
function tableMap({ tables }: Findings, name: string) {
  const { title, rows, columns } = tables.find((table) => table.name === name)!
  const [what, ...sets] = columns
  return heatMap({
    title,
    rows: rows.map((row) => String(row[what!.key])),
    columns: sets.map(({ label }) => label),
    across: 'policies',
    value: (row, column) => Number(rows[row]![sets[column]!.key]),
  })
}
