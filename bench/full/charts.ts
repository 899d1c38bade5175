import type { Chart, Dot } from './chart.ts'
import { provenance, type Results } from './results.ts'
import { summarise, type Line } from './summary.ts'

/** The pictures of a run, by the names of their files. One without rows is left out. */
export function charts(results: Results): Readonly<Record<string, Chart>> {
  const source = provenance(results)
  const loads = results.cells.filter(({ name }) => name !== 'policies')
  const base = loads.find(({ name }) => name === 'base')
  const others = loads.filter((cell) => cell !== base)
  const all: Record<string, Chart> = {
    ways: {
      title: 'CPU of a call, by way',
      unit: 'times the byte proxy; dots are medians, lines reach from quartile to quartile',
      groups: base === undefined ? [] : [{ title: base.title, dots: dots(summarise(base)) }],
      source,
    },
    cells: {
      title: 'CPU of a call, by load',
      unit: 'times the byte proxy at the same load; dots are medians, lines reach from quartile to quartile',
      groups: others.map((cell) => ({ title: cell.title, dots: dots(summarise(cell)) })),
      source,
    },
  }
  return Object.fromEntries(
    Object.entries(all).filter(([, { groups }]) => groups.some(({ dots }) => dots.length > 0)),
  )
}

function dots(lines: readonly Line[]): Dot[] {
  return lines.flatMap(({ row: { name, title, kind }, timesBase }) =>
    timesBase === undefined || name === 'floor' ? [] : [{ title, kind, ratio: timesBase }],
  )
}
