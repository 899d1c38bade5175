import { kinds, type Kind, type Seen } from './scrape-window.ts'
import { quantile } from './statistics.ts'

/** What was measured while the gateway had this to do besides. */
export interface Part {
  readonly title: string
  /** Share of a core that the gateway used. */
  readonly busy: number
  readonly seen: Readonly<Record<Kind, readonly Seen[]>>
}

const HEAD = [
  '',
  '',
  'busy',
  'series',
  'KiB',
  'last byte ms: p50',
  'p75',
  'p95',
  'max',
  'stall ms: p50',
  'p75',
  'p95',
  'max',
]
const QUANTILES = [0.5, 0.75, 0.95, 1]

/** One line for each kind of window. */
export function table(parts: readonly Part[]): string {
  const rows = parts.flatMap(({ title, busy, seen }) =>
    kinds.map((what) => {
      const windows = seen[what]
      const last = windows.at(-1)
      const over = (read: (seen: Seen) => number) => {
        const sorted = Float64Array.from(windows, read).sort()
        return QUANTILES.map((q) => quantile(sorted, q).toFixed(1))
      }
      const size =
        what === 'nothing' || last === undefined
          ? ['–', '–']
          : [String(seriesOf(last.body)), (Buffer.byteLength(last.body) / 1024).toFixed(0)]
      const took = what === 'nothing' ? QUANTILES.map(() => '–') : over(({ tookMs }) => tookMs)
      return [
        title,
        what,
        `${(busy * 100).toFixed(0)} %`,
        ...size,
        ...took,
        ...over(({ stallMs }) => stallMs),
      ]
    }),
  )
  const lines = [HEAD, ...rows]
  const widths = HEAD.map((_, column) => Math.max(...lines.map((line) => line[column]?.length ?? 0)))
  const pad = (cell: string, column: number) =>
    column < 2 ? cell.padEnd(widths[column]!) : cell.padStart(widths[column]!)
  return lines.map((line) => line.map(pad).join('  ')).join('\n')
}

const seriesOf = (body: string) => body.match(/^[^#]/gm)?.length ?? 0
