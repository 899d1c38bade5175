import type { Answers, Series } from './answers.ts'
import { chart } from './chart.ts'
import { hexOf } from './colours.ts'
import { legend } from './legend.ts'
import { stat, table } from './numbers.ts'
import type { Panel } from './panels.ts'
import { escaped, ink, line, rectangle, text, widthOf, wrapped, type Box } from './svg.ts'

/** Sizes in pixels. A column is 1/24 of the width, a row is the unit of panels' heights. */
const COLUMN = 50
const ROW = 37
const GAP = 8
const MARGIN = 16
const HEADER = 92
const WIDTH = 24 * COLUMN + 2 * MARGIN

/** Returns a whole dashboard as one SVG, with panels placed as in Grafana. */
export function sheet(answers: Answers): string {
  const bottom = Math.max(...answers.panels.map(({ panel: { place } }) => place.y + place.h))
  const height = HEADER + bottom * ROW + MARGIN
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" font-family="sans-serif" font-size="12">`,
    `<title>${escaped(answers.title)}</title>`,
    rectangle({ x: 0, y: 0, width: WIDTH, height }, `fill="${ink.ground}"`),
    header(answers),
    ...answers.panels.map(({ panel, series }) => drawn(panel, series, answers)),
    '</svg>\n',
  ].join('\n')
}

function header({ title, about, chosen, marks, seconds }: Answers): string {
  const choices = Object.entries(chosen).map(([name, value]) => `${name}: ${value}`)
  const run = `${Math.round(seconds)} seconds of load; times are minutes since its start`
  const parts = [
    text(MARGIN, 36, title, { size: 22, bold: true }),
    text(MARGIN, 58, about, { size: 13, colour: ink.faint }),
    text(MARGIN, 78, [...choices, run].join('  ·  '), { colour: ink.faint }),
  ]
  const kinds = [...new Map(marks.map(({ name, colour }) => [name, hexOf(colour)]))]
  let right = WIDTH - MARGIN
  for (const [name, colour] of kinds.reverse()) {
    parts.push(text(right, 36, name, { anchor: 'end' }))
    right -= widthOf(name) + 10
    parts.push(`<g stroke-dasharray="4 3">${line(right, 24, right, 40, colour)}</g>`)
    right -= 20
  }
  return parts.join('')
}

/** Draws a panel in its frame. `<title>` holds the whole title, for screen readers. */
function drawn(panel: Panel, series: readonly Series[], answers: Answers): string {
  const { x, y, w, h } = panel.place
  const left = MARGIN + x * COLUMN
  const top = HEADER + y * ROW
  if (panel.type === 'row')
    return `<g><title>${escaped(panel.title)}</title>${text(left + 2, top + ROW / 2 + 8, panel.title, { size: 15, bold: true })}</g>`
  const frame = { x: left, y: top, width: w * COLUMN - (x + w < 24 ? GAP : 0), height: h * ROW - GAP }
  const titles = wrapped(panel.title, frame.width - 20, 13, true)
  const head = 12 + titles.length * 16
  // Numbers side by side have one height, whether their titles have one line or two.
  const above = titles.length > 2 ? head : 28
  const inner = { x: left + 10, y: top + head, width: frame.width - 20, height: frame.height - head - 8 }
  return [
    `<g><title>${escaped(panel.title)}</title>`,
    rectangle(frame, `rx="4" fill="${ink.paper}" stroke="${ink.rule}"`),
    ...titles.map((words, nth) => text(left + 10, top + 20 + nth * 16, words, { size: 13, bold: true })),
    panel.type === 'stat'
      ? stat(panel, series, { ...inner, y: top + above, height: frame.height - above - 8 })
      : body(panel, series, answers, inner),
    '</g>',
  ].join('')
}

function body(panel: Panel, series: readonly Series[], answers: Answers, box: Box): string {
  if (series.length === 0) {
    const middle = { x: box.x + box.width / 2, y: box.y + box.height / 2 }
    return text(middle.x, middle.y, 'no data in this run', { colour: ink.faint, anchor: 'middle' })
  }
  if (panel.type === 'table') return table(panel, series, box)
  const names = legend(panel, series, box.width, box.height * 0.5)
  const plot = { width: box.width, height: box.height - names.height }
  return [
    `<g transform="translate(${box.x} ${box.y})">${chart(panel, series, answers, plot)}</g>`,
    names.draw({ ...box, y: box.y + plot.height, height: names.height }),
  ].join('')
}
