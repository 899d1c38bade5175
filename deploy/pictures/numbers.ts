import type { Series } from './answers.ts'
import { hexOf } from './colours.ts'
import { colourOf, type Panel } from './panels.ts'
import { ink, line, shortened, text, widthOf, type Box, type TextLook } from './svg.ts'
import { withUnit } from './units.ts'

const ROW = 22

/** Numbers of a stat panel, each in its share of the box; with names if there are several. */
export function stat(panel: Panel, series: readonly Series[], box: Box): string {
  const shown = series.length === 0 ? [undefined] : series
  const isTall = box.height > box.width
  return shown
    .map((one, nth) => {
      const share = isTall
        ? { ...box, y: box.y + (nth * box.height) / shown.length, height: box.height / shown.length }
        : { ...box, x: box.x + (nth * box.width) / shown.length, width: box.width / shown.length }
      return number(panel, one, share, series.length > 1)
    })
    .join('')
}

function number(panel: Panel, series: Series | undefined, box: Box, hasName: boolean): string {
  const value = series?.values.at(-1) ?? undefined
  const known = value === undefined ? undefined : panel.words[String(value)]
  const words = value === undefined ? panel.noValue : (known?.text ?? withUnit(value, panel.unit))
  const colour = value === undefined ? ink.faint : hexOf(known?.color ?? colourOf(value, panel.steps))
  const size = Math.min(26, (26 * box.width * 0.9) / widthOf(words, 26, true))
  const middle = { x: box.x + box.width / 2, y: box.y + box.height / 2 }
  const parts = [
    text(middle.x, middle.y + size * 0.36 + (hasName ? 10 : 0), words, {
      size: Math.round(size),
      colour,
      bold: true,
      anchor: 'middle',
    }),
  ]
  if (hasName && series !== undefined)
    parts.push(
      text(middle.x, middle.y - 16, shortened(series.name, box.width - 8), {
        colour: ink.faint,
        anchor: 'middle',
      }),
    )
  return parts.join('')
}

/** A row for each set of labels, a column for each label and each query. */
export function table(panel: Panel, series: readonly Series[], box: Box): string {
  const labels = [...new Set(series.flatMap((one) => Object.keys(one.labels)))].filter(
    (name) => name !== '__name__',
  )
  const rows = new Map<string, { cells: string[]; values: Map<number, string> }>()
  for (const { labels: own, values, query } of series) {
    const cells = labels.map((label) => own[label] ?? '')
    const row = rows.get(cells.join('\n')) ?? { cells, values: new Map<number, string>() }
    const value = values.at(-1)
    const words = panel.columns[panel.targets[query]?.legendFormat ?? '']?.[String(value)]?.text
    if (value !== null && value !== undefined) row.values.set(query, words ?? withUnit(value, panel.unit))
    rows.set(cells.join('\n'), row)
  }
  const lines = [...rows.values()].map(({ cells, values }) => [
    ...cells,
    ...panel.targets.map((_, query) => values.get(query) ?? ''),
  ])
  const heads = [...labels, ...panel.targets.map(({ legendFormat }) => legendFormat)]
  const widths = heads.map((head, nth) =>
    Math.max(widthOf(head, 12, true), ...lines.map((line) => widthOf(line[nth] ?? ''))),
  )
  const spare = (box.width - widths.reduce((sum, width) => sum + width, 0)) / heads.length
  const lefts = widths.map((_, nth) =>
    widths.slice(0, nth).reduce((sum, width) => sum + width + spare, box.x + 4),
  )
  const row = (words: readonly string[], y: number, look: TextLook = {}) =>
    words.map((cell, nth) => text(lefts[nth] ?? box.x, y, cell, look)).join('')
  const room = Math.floor(box.height / ROW) - 1
  const parts = [row(heads, box.y + 15, { bold: true, colour: ink.faint })]
  lines.slice(0, room).forEach((words, nth) => {
    const top = box.y + (nth + 1) * ROW
    parts.push(line(box.x, top, box.x + box.width, top, ink.rule), row(words, top + 15))
  })
  return parts.join('')
}
