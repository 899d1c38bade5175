import { markup, type Markup } from '../experiments/html/markup.ts'
import { blockMarkup, pageOf } from '../experiments/html/page.ts'
import type { SweepCell, SweepOptions } from './sweep.ts'
import { curves, heatMap } from './pictures.ts'
import { numbered } from '../units/numbered.ts'

/** Formats a ratio in percent, without needless digits. */
export const percentage = (rate: number): string => `${Number((rate * 100).toPrecision(6))} %`

export const cellOf = (
  cells: readonly SweepCell[],
  policies: string,
  rate: number,
  fanOut: number,
): SweepCell =>
  cells.find((cell) => cell.policies === policies && cell.rate === rate && cell.fanOut === fanOut)!

export function radiusMap(
  cells: readonly SweepCell[],
  policies: string,
  { rates, fanOuts }: SweepOptions,
): Markup {
  return heatMap({
    title: `Blast radius, ${policies === 'none' ? 'no policies' : policies}`,
    rows: rates.map(percentage),
    columns: fanOuts.map(String),
    across: 'tool calls a task',
    value: (row, column) => cellOf(cells, policies, rates[row]!, fanOuts[column]!).measured,
  })
}

/**
 * Returns a chart of the blast radius: a line per rate, with a band of one standard deviation. The dashed lines are the
 * prediction.
 */
export function radiusCurves(
  cells: readonly SweepCell[],
  policies: string,
  { rates, fanOuts }: SweepOptions,
): Markup {
  return curves({
    title: `Blast radius by calls a task, ${policies === 'none' ? 'no policies' : policies}`,
    across: 'tool calls a task',
    up: 'share of the tasks',
    marks: fanOuts.toSorted((a, b) => a - b),
    lines: rates.toReversed().map((rate) => {
      const found = fanOuts.toSorted((a, b) => a - b).map((fanOut) => cellOf(cells, policies, rate, fanOut))
      return {
        name: `${percentage(rate)} errors`,
        points: found.map(({ fanOut, measured, sd }) => {
          return { x: fanOut, y: measured, low: measured - (sd ?? 0), high: measured + (sd ?? 0) }
        }),
        dashed: found.map(({ fanOut, predicted }) => ({ x: fanOut, y: predicted })),
      }
    }),
  })
}

/** Returns a self-contained page that loads no other files. */
export function sweepPage(cells: readonly SweepCell[], options: SweepOptions): string {
  const { tasks, seeds, seed, choices } = options
  const section = (policies: string) => markup`<h2>${policies === 'none' ? 'No policies' : policies}</h2>
<div class="scroll" tabindex="0" role="region" aria-label="Heat map, ${policies}">${radiusMap(cells, policies, options)}</div>
<div class="scroll" tabindex="0" role="region" aria-label="Curves, ${policies}">${radiusCurves(cells, policies, options)}</div>`
  const rows = cells.map(({ rate, fanOut, policies, predicted, measured, sd }) => [
    policies,
    percentage(rate),
    String(fanOut),
    predicted.toFixed(3),
    measured.toFixed(3),
    sd?.toFixed(3) ?? '–',
  ])
  return pageOf({
    title: 'Blast radius',
    charts: undefined,
    body: markup`<h1><b>Blast radius</b>: share of tasks with a failure</h1>
<p>${numbered(tasks, 'task')} in each run, ${numbered(seeds, 'run')} of each cell (seeds ${seed} to ${seed + seeds - 1}), simulated. Bands: one standard
deviation between runs. Dashed: 1 − (1 − rate)^calls, the share for independent failures without retries.</p>
${choices.map(({ name }) => section(name))}
<h2>All cells</h2>
${blockMarkup(
  {
    table: {
      head: ['policies', 'errors', 'calls a task', 'predicted', 'measured', 'sd'],
      rows,
      numbers: 1,
    },
  },
  'All cells',
)}`,
  })
}
