import { init, type EChartsCoreOption } from 'echarts'
import type { Answers, Series } from './answers.ts'
import { colourOfLine, hexOf } from './colours.ts'
import type { Panel } from './panels.ts'
import { coordinate, ink, widthOf } from './svg.ts'
import { marksOf, withUnit } from './units.ts'

const FONT = 11

/** Returns the lines of a panel in a coordinate system, `width` × `height` pixels, as an SVG to embed. */
export function chart(
  panel: Panel,
  series: readonly Series[],
  { seconds, step, marks }: Answers,
  { width, height }: { readonly width: number; readonly height: number },
): string {
  const { low, end, interval } = axisOf(panel, series)
  const label = (value: number) => withUnit(value, panel.unit)
  const labels = Array.from({ length: Math.round((end - low) / interval) + 1 }, (_, nth) =>
    label(low + nth * interval),
  )
  const option: EChartsCoreOption = {
    animation: false,
    textStyle: { fontFamily: 'sans-serif', fontSize: FONT },
    grid: {
      left: Math.max(...labels.map((text) => widthOf(text, FONT))) + 10,
      right: 14,
      top: 8,
      bottom: 22,
      outerBoundsMode: 'none',
    },
    xAxis: {
      type: 'value',
      min: 0,
      max: seconds,
      interval: 60,
      axisLine: { lineStyle: { color: ink.rule } },
      axisTick: { show: false },
      splitLine: { lineStyle: { color: ink.ground } },
      axisLabel: { color: ink.faint, fontSize: FONT, margin: 7, formatter: clock, showMaxLabel: false },
    },
    yAxis: {
      type: 'value',
      min: low,
      max: end,
      interval,
      axisLine: { show: false },
      axisTick: { show: false },
      splitLine: { lineStyle: { color: ink.rule } },
      axisLabel: { color: ink.faint, fontSize: FONT, formatter: label },
    },
    series: [
      ...series.map(({ name, values }, index) => ({
        type: 'line',
        silent: true,
        showSymbol: false,
        clip: true,
        emphasis: { disabled: true },
        color: colourOfLine(panel, name, index),
        lineStyle: { width: panel.isStacked ? 1 : 1.5 },
        ...(panel.isStacked && { stack: 'all', areaStyle: { opacity: panel.fill } }),
        ...(!panel.isStacked && series.length === 1 && { areaStyle: { opacity: panel.fill } }),
        data: pointsOf(values, step, panel.isStacked),
      })),
      {
        type: 'line',
        silent: true,
        data: [],
        markLine: {
          silent: true,
          symbol: 'none',
          animation: false,
          label: { show: false },
          data: [
            ...marks.map(({ at, colour }) => ({
              xAxis: at,
              lineStyle: { color: hexOf(colour), type: [4, 3], width: 1 },
            })),
            ...limitsOf(panel, low, end).map(({ value, color }) => ({
              yAxis: value,
              lineStyle: { color: hexOf(color), type: [8, 5], width: 1 },
            })),
          ],
        },
      },
    ],
  }
  const canvas = init(null, null, { renderer: 'svg', ssr: true, width, height })
  canvas.setOption(option)
  const svg = canvas.renderToSVGString()
  // The canvas's timers would keep the process alive.
  canvas.dispose()
  return slimmed(svg)
}

const clock = (seconds: number) =>
  `${Math.floor(seconds / 60)}:${String(Math.round(seconds % 60)).padStart(2, '0')}`

function axisOf({ min, softMax, unit, isStacked }: Panel, series: readonly Series[]) {
  const heights = isStacked ? [sums(series)] : series.map(({ values }) => values)
  const numbers = heights.flat().filter((value) => value !== null)
  const low = min ?? Math.min(...numbers)
  const { end, step } = marksOf(low, Math.max(softMax ?? low, ...numbers), unit)
  return { low, end, interval: step }
}

/** Returns the sum of all lines at each step. */
function sums(series: readonly Series[]): number[] {
  const [first] = series
  return (first?.values ?? []).map((_, nth) =>
    series.reduce((sum, { values }) => sum + (values[nth] ?? 0), 0),
  )
}

/** Returns thresholds within the range of the axis. */
const limitsOf = ({ hasLimits, steps }: Panel, low: number, end: number) =>
  steps.filter(({ value }) => hasLimits && value !== null && value > low && value < end)

/** Returns points `[seconds, value]` without the inner points of level stretches; stacked areas keep all points. */
function pointsOf(values: Series['values'], step: number, isStacked: boolean): [number, number | null][] {
  return values.flatMap((value, nth): [number, number | null][] => {
    if (isStacked) return [[nth * step, value ?? 0]]
    const isLevel =
      nth > 0 && nth < values.length - 1 && values[nth - 1] === value && values[nth + 1] === value
    return isLevel ? [] : [[nth * step, value]]
  })
}

/**
 * Removes parts for mouse interaction and rounds coordinates to one decimal: several times smaller. Not all programs
 * know `dominant-baseline`, so texts are moved down instead.
 */
function slimmed(svg: string): string {
  return svg
    .replace(/<style[\s\S]*?<\/style>/g, '')
    .replace(
      / (?:class|pointer-events|ecmeta_\w+|style|xml:space|baseProfile|version|xmlns(?::\w+)?)="[^"]*"/g,
      '',
    )
    .replaceAll('dominant-baseline="central"', 'dy=".36em"')
    .replace(/ (d|transform|[xy]|width|height)="([^"]*)"/g, (_, name: string, value: string) => {
      const rounded = value.replace(/-?\d+\.\d{2,}/g, (number) => coordinate(Number(number)))
      return ` ${name}="${rounded}"`
    })
    .replace(/<svg /, `<svg font-size="${FONT}" `)
    .replace(/\n+/g, '\n')
    .trim()
}
