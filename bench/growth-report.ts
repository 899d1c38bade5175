/** Measurements at one count. */
export interface Point {
  readonly at: number
  readonly figures: Readonly<Record<string, number>>
}

export interface Dimension {
  readonly name: string
  /** Name of the counted items. */
  readonly unit: string
  /** By ascending counts. */
  readonly points: readonly Point[]
}

interface Measure {
  readonly title: string
  readonly digits: number
  /** True: the figure is per item, and should not grow. */
  readonly isEach?: boolean
}

/** Every possible figure of a point, in the order of the columns. */
export const measures: Readonly<Record<string, Measure>> = {
  startMs: { title: 'start-up, ms', digits: 0 },
  startCpuMs: { title: 'CPU of it, ms', digits: 0 },
  openMs: { title: 'time to open, ms', digits: 0 },
  residentMib: { title: 'RSS, MiB', digits: 0 },
  heapMib: { title: 'heap, MiB', digits: 1 },
  residentKibEach: { title: 'RSS each, KiB', digits: 1, isEach: true },
  heapKibEach: { title: 'heap each, KiB', digits: 1, isEach: true },
  listed: { title: 'listed', digits: 0 },
  firstListMs: { title: 'first list, ms', digits: 1 },
  listMs: { title: 'list again, ms', digits: 1 },
  cpuMicros: { title: 'CPU of a call, µs', digits: 0 },
  timesFirst: { title: '× first', digits: 2 },
  p50Ms: { title: 'p50, ms', digits: 2 },
  p99Ms: { title: 'p99, ms', digits: 2 },
  reloadMs: { title: 'reload, ms', digits: 0 },
  reloadCpuMs: { title: 'CPU of it, ms', digits: 0 },
  idlePercent: { title: 'idle CPU, % of a core', digits: 2 },
}

/** Smallest gain over the first value that counts as growth, as a share of the first value. */
const LEAST_GAIN = 0.25

/**
 * Returns the power of the count by which a figure grows towards the end, over its value at the first point: 1 is
 * linear, 2 is four times the gain for twice the count. Undefined below a total growth of a quarter, or with fewer than
 * three points.
 */
export function powerOf(points: readonly Point[], figure: string): number | undefined {
  const [first, last, before] = [points[0], points.at(-1), points.at(-2)]
  if (first === undefined || last === undefined || before === undefined || points.length < 3) return undefined
  const value = (point: Point) => point.figures[figure] ?? NaN
  const gain = value(last) - value(first)
  const gainBefore = value(before) - value(first)
  if (!(gain > LEAST_GAIN * value(first))) return undefined
  // No gain before the last step: growth began within the last step.
  if (gainBefore <= 0) return undefined
  return Math.log(gain / gainBefore) / Math.log((last.at - first.at) / (before.at - first.at))
}

/** Returns a Markdown table; its last line holds the powers of growth. */
export function tableOf({ unit, points }: Dimension): string {
  const shown = Object.keys(measures).filter((name) => points.some(({ figures }) => name in figures))
  const cells = (point: Point) => shown.map((name) => number(point.figures[name], measures[name]!.digits))
  const powers = shown.map((name) => {
    const power = measures[name]!.isEach === true ? undefined : powerOf(points, name)
    return power === undefined ? '' : `n^${power.toFixed(2)}`
  })
  const lines = [
    [unit, ...shown.map((name) => measures[name]!.title)],
    ['---:', ...shown.map(() => '---:')],
    ...points.map((point) => [point.at.toLocaleString('en'), ...cells(point)]),
    ['grows by', ...powers],
  ]
  return lines.map((line) => `| ${line.join(' | ')} |`).join('\n')
}

function number(value: number | undefined, digits: number): string {
  if (value === undefined || !Number.isFinite(value)) return '–'
  return value.toLocaleString('en', { minimumFractionDigits: digits, maximumFractionDigits: digits })
}

export function pageOf(dimensions: readonly Dimension[], machine: string): string {
  const parts = dimensions.map((dimension) => `### ${capital(dimension.unit)}\n\n${tableOf(dimension)}`)
  return `${machine}\n\n${parts.join('\n\n')}\n`
}

const capital = (words: string) => words.slice(0, 1).toUpperCase() + words.slice(1)
