import { paletteColour } from '../deploy/pictures/colours.ts'
import { coordinate, ink, line, rectangle, text } from '../deploy/pictures/svg.ts'
import { measures, type Dimension, type Point } from './growth-report.ts'

/** Figures with a curve, if a dimension has the figure. A figure may be a total, a value for each, or both. */
const drawn = [
  'startCpuMs',
  'openMs',
  'residentMib',
  'heapKibEach',
  'listMs',
  'cpuMicros',
  'reloadCpuMs',
  'idlePercent',
  'p99Ms',
]

const PANEL = { width: 190, height: 130 } as const
const GAP = { x: 52, y: 52 } as const
const MARGIN = { left: 56, top: 34, right: 16, bottom: 20 } as const

/** Returns all curves, both axes logarithmic. A dashed line is linear growth. A row for each dimension. */
export function curves(dimensions: readonly Dimension[]): string {
  const rows = dimensions.map((dimension) => ({
    dimension,
    figures: drawn.filter((name) => shownIn(dimension, name).length > 1),
  }))
  const columns = Math.max(...rows.map(({ figures }) => figures.length))
  const width = MARGIN.left + columns * (PANEL.width + GAP.x) - GAP.x + MARGIN.right
  const height = MARGIN.top + rows.length * (PANEL.height + GAP.y) - GAP.y + 16 + MARGIN.bottom
  const panels = rows.flatMap(({ dimension, figures }, row) =>
    figures.map((figure, column) => {
      const x = MARGIN.left + column * (PANEL.width + GAP.x)
      const y = MARGIN.top + row * (PANEL.height + GAP.y)
      return panel(dimension, figure, { x, y, colour: paletteColour(row) })
    }),
  )
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="sans-serif" font-size="12">`,
    rectangle({ x: 0, y: 0, width, height }, `fill="${ink.paper}"`),
    ...panels,
    '</svg>\n',
  ].join('\n')
}

interface Look {
  readonly x: number
  readonly y: number
  readonly colour: string
}

/** Returns the points with a place on logarithmic axes. */
function shownIn({ points }: Dimension, figure: string): Point[] {
  return points.filter(({ figures }) => (figures[figure] ?? 0) > 0)
}

function panel(dimension: Dimension, figure: string, { x, y, colour }: Look): string {
  const { unit } = dimension
  const points = shownIn(dimension, figure)
  const value = (point: Point) => point.figures[figure] ?? NaN
  const across = decades(points.map(({ at }) => at))
  const up = decades(points.map(value))
  const px = (at: number) => x + across.share(at) * PANEL.width
  const py = (at: number) => y + PANEL.height - up.share(at) * PANEL.height
  const way = points.map((point) => `${coordinate(px(point.at))} ${coordinate(py(value(point)))}`)
  const last = points.at(-1)!
  // Linear growth that ends at the same last point, as far as the panel reaches.
  const from = Math.max(points[0]!.at, (last.at * up.low) / value(last))
  const linear = `M${coordinate(px(from))} ${coordinate(py((value(last) * from) / last.at))}L${way.at(-1)}`
  return [
    rectangle({ x, y, ...PANEL }, `fill="${ink.ground}"`),
    text(x, y - 8, measures[figure]!.title, { bold: true }),
    ...up.marks.flatMap((mark) => [
      line(x, py(mark), x + PANEL.width, py(mark), ink.rule),
      text(x - 5, py(mark) + 4, short(mark), { size: 10, colour: ink.faint, anchor: 'end' }),
    ]),
    ...across.marks.map((mark) =>
      text(px(mark), y + PANEL.height + 14, short(mark), { size: 10, colour: ink.faint, anchor: 'middle' }),
    ),
    text(x + PANEL.width, y - 8, unit, { size: 10, colour: ink.faint, anchor: 'end' }),
    `<path d="${linear}" stroke="${ink.faint}" stroke-dasharray="3 3" fill="none"/>`,
    `<path d="M${way.join('L')}" stroke="${colour}" stroke-width="1.5" fill="none"/>`,
    ...points.map(
      (point) =>
        `<circle cx="${coordinate(px(point.at))}" cy="${coordinate(py(value(point)))}" r="2.5" fill="${colour}"/>`,
    ),
  ].join('')
}

/** Returns the powers of ten around values, and a function from a value to its place on the axis, from 0 to 1. */
export function decades(values: readonly number[]): {
  readonly low: number
  readonly marks: readonly number[]
  readonly share: (value: number) => number
} {
  const low = Math.floor(Math.log10(Math.min(...values)) + 1e-9)
  const high = Math.max(low + 1, Math.ceil(Math.log10(Math.max(...values)) - 1e-9))
  return {
    low: 10 ** low,
    marks: Array.from({ length: high - low + 1 }, (_, index) => 10 ** (low + index)),
    share: (value) => (Math.log10(value) - low) / (high - low),
  }
}

const short = (value: number) =>
  value >= 1_000 ? `${(value / 1_000).toLocaleString('en')}k` : String(Number(value.toPrecision(2)))
