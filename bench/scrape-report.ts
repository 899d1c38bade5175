import { kinds, type Kind, type Seen } from './scrape-window.ts'
import { quantile } from './statistics.ts'

/** Measurements during one kind of other work. */
export interface Part {
  readonly title: string
  /** Share of a core that the gateway used. */
  readonly busy: number
  readonly seen: Readonly<Record<Kind, readonly Seen[]>>
}

const HEAD = ['', '', 'busy', 'series', 'KiB', 'CPU ms', 'last byte ms', 'p75', 'p95', 'max']
const STALLS = ['stall ms', 'p75', 'p95', 'max']

/** Returns a line for each kind of window: medians, and bounds for most or all windows if labelled so. */
export function table(parts: readonly Part[]): string {
  const rows = parts.flatMap(({ title, busy, seen }) =>
    kinds.map((kind) => [title, kind, `${(busy * 100).toFixed(0)} %`, ...figures(kind, seen[kind])]),
  )
  const lines = [[...HEAD, ...STALLS], ...rows]
  const widths = lines[0]!.map((_, column) => Math.max(...lines.map((line) => line[column]?.length ?? 0)))
  const pad = (cell: string, column: number) =>
    column < 2 ? cell.padEnd(widths[column]!) : cell.padStart(widths[column]!)
  return lines.map((line) => line.map(pad).join('  ')).join('\n')
}

/** Returns the line for the first scrape, before any code is compiled or any cache is filled. */
export function firstLine({ tookMs, stallMs }: Seen): string {
  return `first scrape of the process: ${tookMs.toFixed(1)} ms, stall ${stallMs.toFixed(1)} ms`
}

function figures(kind: Kind, windows: readonly Seen[]): string[] {
  const over = (read: (seen: Seen) => number, ...quantiles: number[]) => {
    const sorted = Float64Array.from(windows, read).sort()
    return quantiles.map((q) => quantile(sorted, q).toFixed(1))
  }
  const cpu = over(({ cpuMs }) => cpuMs, 0.5)
  const stalls = over(({ stallMs }) => stallMs, 0.5, 0.75, 0.95, 1)
  if (kind === 'nothing') return ['–', '–', ...cpu, '–', '–', '–', '–', ...stalls]
  const body = windows.at(-1)?.body ?? ''
  const series = body.match(/^[^#]/gm)?.length ?? 0
  const took = over(({ tookMs }) => tookMs, 0.5, 0.75, 0.95, 1)
  return [String(series), (Buffer.byteLength(body) / 1024).toFixed(0), ...cpu, ...took, ...stalls]
}
