import { type Markup, markup } from '../experiments/html/markup.ts'

/**
 * Charts as SVG, in a page or in a file. Colours come from the page's variables; in a file, the fallback values apply.
 */
const INK = 'var(--ink, #16202c)'
const SOFT = 'var(--soft, #55606e)'
const GRID = 'var(--grid, #e6e9ee)'
const COLORS = [1, 2, 3, 4, 5, 6, 7, 0].map(
  (at) =>
    `var(--arm-${at}, ${['#5b6675', '#1d4ed8', '#c2410c', '#0f766e', '#7e22ce', '#be185d', '#4d7c0f', '#854d0e'][at]})`,
)

const FONT = 'system-ui, sans-serif'

/** Formats a number of pixels with one digit, so pictures are equal on every machine. */
const px = (value: number): string => value.toFixed(1)

function picture(width: number, height: number, label: string, content: Markup): Markup {
  return markup`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-label="${label}" style="max-width: 100%; height: auto; font: 13px ${FONT}">
${content}</svg>`
}

interface Label {
  readonly x: number
  readonly y: number
  readonly anchor?: 'start' | 'middle' | 'end'
  readonly color?: string
}

const label = (text: string, { x, y, anchor = 'middle', color = SOFT }: Label): Markup =>
  markup`<text x="${px(x)}" y="${px(y)}" text-anchor="${anchor}" style="fill: ${color}">${text}</text>
`

export interface HeatMap {
  readonly title: string
  readonly rows: readonly string[]
  readonly columns: readonly string[]
  readonly across: string
  /** Returns the value of a cell; at least 0. */
  readonly value: (row: number, column: number) => number
  /** The value shown in the reddest colour. Default: 1. */
  readonly most?: number
}

const CELL = { width: 72, height: 36 }

/** Width of a letter in a row's name, and minimum width of the names, in pixels. */
const LETTER = 7
const LEAST_LEFT = 64

/** Returns a table of coloured cells; larger numbers are redder. */
export function heatMap({ title, rows, columns, across, value, most = 1 }: HeatMap): Markup {
  const left = Math.max(LEAST_LEFT, 16 + LETTER * Math.max(...rows.map((name) => name.length)))
  const top = 44
  const cells = rows.flatMap((_, row) =>
    columns.map((_, column) => {
      const number = value(row, column)
      const share = Math.min(1, number / most)
      const x = left + column * CELL.width
      const y = top + row * CELL.height
      const color = share > 0.55 ? '#ffffff' : INK
      return markup`<rect x="${x}" y="${y}" width="${CELL.width - 2}" height="${CELL.height - 2}" rx="3" style="fill: #b42318; fill-opacity: ${(0.04 + 0.96 * share).toFixed(3)}"/>
${label(number.toFixed(2), { x: x + CELL.width / 2 - 1, y: y + CELL.height / 2 + 4, color })}`
    }),
  )
  const names = [
    label(title, { x: left, y: 16, anchor: 'start', color: INK }),
    ...columns.map((name, at) => label(name, { x: left + (at + 0.5) * CELL.width, y: top - 8 })),
    ...rows.map((name, at) =>
      label(name, { x: left - 8, y: top + (at + 0.5) * CELL.height + 4, anchor: 'end' }),
    ),
    label(across, { x: left + (columns.length * CELL.width) / 2, y: top + rows.length * CELL.height + 18 }),
  ]
  const width = left + columns.length * CELL.width + 8
  return picture(width, top + rows.length * CELL.height + 28, title, markup`${names}${cells}`)
}

/** A point of a line, with the bounds of its value. */
export interface Point {
  readonly x: number
  readonly y: number
  readonly low?: number
  readonly high?: number
}

export interface Line {
  readonly name: string
  readonly points: readonly Point[]
  readonly dashed?: readonly Point[]
}

export interface Curves {
  readonly title: string
  readonly lines: readonly Line[]
  readonly across: string
  readonly up: string
  /** Largest value on the vertical axis. Default: 1. */
  readonly most?: number
  readonly marks: readonly number[]
}

const PLOT = { left: 60, top: 40, width: 460, height: 240 }
const STEPS = 4

/** Returns a chart of lines with bands. The horizontal axis goes from the first entry of `marks` to the last. */
export function curves({ title, lines, across, up, most = 1, marks }: Curves): Markup {
  const { left, top, width, height } = PLOT
  const first = marks[0] ?? 0
  const last = marks.at(-1) ?? 1
  const xOf = (x: number) => left + ((x - first) / Math.max(1e-9, last - first)) * width
  const yOf = (y: number) => top + height - (Math.min(Math.max(y, 0), most) / most) * height
  const way = (points: readonly { readonly x: number; readonly y: number }[]) =>
    points.map(({ x, y }) => `${px(xOf(x))},${px(yOf(y))}`).join(' ')
  const grid = Array.from({ length: STEPS + 1 }, (_, step) => {
    const value = (most * step) / STEPS
    const y = yOf(value)
    return markup`<line x1="${left}" x2="${left + width}" y1="${px(y)}" y2="${px(y)}" style="stroke: ${GRID}"/>
${label(String(Number(value.toPrecision(3))), { x: left - 8, y: y + 4, anchor: 'end' })}`
  })
  const drawn = lines.map(({ points, dashed }, at) => {
    const color = COLORS[at % COLORS.length]!
    const isBand = points.some(({ low, high }) => low !== undefined && high !== undefined)
    const edge = [
      ...points.map(({ x, y, high = y }) => ({ x, y: high })),
      ...points.toReversed().map(({ x, y, low = y }) => ({ x, y: low })),
    ]
    return markup`${isBand ? markup`<polygon points="${way(edge)}" style="fill: ${color}; fill-opacity: 0.15"/>` : undefined}
<polyline points="${way(points)}" style="fill: none; stroke: ${color}; stroke-width: 2"/>
${dashed && markup`<polyline points="${way(dashed)}" style="fill: none; stroke: ${color}; stroke-width: 1.5; stroke-dasharray: 4 4"/>`}`
  })
  const legend = lines.map(({ name }, at) => {
    const y = top + 8 + at * 20
    return markup`<rect x="${left + width + 16}" y="${y - 9}" width="10" height="10" rx="2" style="fill: ${COLORS[at % COLORS.length]}"/>
${label(name, { x: left + width + 32, y, anchor: 'start', color: INK })}`
  })
  const names = [
    label(title, { x: left, y: 16, anchor: 'start', color: INK }),
    label(up, { x: left, y: 32, anchor: 'start' }),
    ...marks.map((mark) => label(String(mark), { x: xOf(mark), y: top + height + 18 })),
    label(across, { x: left + width / 2, y: top + height + 36 }),
  ]
  const total = Math.max(top + height + 48, top + lines.length * 20 + 16)
  return picture(left + width + 190, total, title, markup`${names}${grid}${drawn}${legend}`)
}

/** Returns a picture as a file with a white background, because a file has no page style. */
export const standalone = ({ text }: Markup): string =>
  `${text.replace('>\n', '>\n<rect width="100%" height="100%" fill="#ffffff"/>\n')}\n`
