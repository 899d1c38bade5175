import { coordinate, escaped, wrapped } from '../../deploy/pictures/svg.ts'
import type { Spread } from '../statistics.ts'
import { provenance, type Results } from './results.ts'
import { summarise, type Line } from './summary.ts'

/** A chart of ratios: a dot for each row, with a line over its quartiles, on an axis where each step is a doubling. */
export interface Chart {
  readonly title: string
  /** Meaning of the ratio 1. */
  readonly unit: string
  readonly groups: readonly Group[]
  /** Machine and method of the measurement. */
  readonly source: string
}

export interface Group {
  readonly title: string
  readonly dots: readonly Dot[]
}

export interface Dot {
  readonly title: string
  readonly kind: 'reference' | 'ours' | 'peer'
  readonly ratio: Spread
}

const WIDTH = 760
const LABELS = 270
const NUMBERS = 56
const ROW = 21
const HEAD = 68
const MARGIN = 16
/** Font size of secondary text, in pixels. */
const SMALL = 11

/** Light and dark: the reader's own setting decides, even for a picture in `<img>`. */
const style = `
text{font:12px sans-serif;fill:#24292f}.paper{fill:#fff}.faint{fill:#59636e;font-size:${SMALL}px}.title{font-size:15px;font-weight:600}
.group{font-weight:600}.rule{stroke:#d9dee4}.one{stroke:#8b949e;stroke-dasharray:4 3}
.ours{fill:#1f5fbf;stroke:#1f5fbf}.peer{fill:#c2570c;stroke:#c2570c}.reference{fill:#6b7480;stroke:#6b7480}
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.paper{fill:#0d1117}.faint{fill:#9198a1}.rule{stroke:#30363d}.one{stroke:#6e7681}
.ours{fill:#58a6ff;stroke:#58a6ff}.peer{fill:#f0883e;stroke:#f0883e}.reference{fill:#9198a1;stroke:#9198a1}}`

export function drawn({ title, unit, groups, source }: Chart): string {
  const ratios = groups.flatMap(({ dots }) => dots.map(({ ratio }) => ratio))
  const axis = doublings(ratios)
  const [from, to] = [axis[0]!, axis.at(-1)!]
  const right = WIDTH - NUMBERS
  const x = (ratio: number) =>
    LABELS + ((Math.log2(ratio) - Math.log2(from)) / Math.log2(to / from)) * (right - LABELS)
  const parts: string[] = []
  let y = HEAD
  for (const group of groups) {
    if (group.title !== '') {
      parts.push(words(MARGIN, y + 14, group.title, 'group'))
      y += ROW
    }
    for (const dot of group.dots) {
      parts.push(...row(dot, y + ROW / 2, x))
      y += ROW
    }
    y += 6
  }
  const lines = axis.map((mark) => {
    const at = coordinate(x(mark))
    const label = `<text x="${at}" y="${HEAD - 8}" class="faint" text-anchor="middle">${mark < 1 ? `1/${1 / mark}` : mark}×</text>`
    return `<path class="${mark === 1 ? 'one' : 'rule'}" d="M${at} ${HEAD}V${y}"/>${label}`
  })
  const sources = wrapped(source, WIDTH - 2 * MARGIN, SMALL)
  const height = y + 14 + sources.length * 15
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" role="img" aria-label="${escaped(title)}">`,
    `<style>${style}</style><rect class="paper" width="${WIDTH}" height="${height}"/>`,
    words(MARGIN, 24, title, 'title'),
    words(MARGIN, 42, unit, 'faint'),
    ...lines,
    ...parts,
    ...sources.map((line, nth) => words(MARGIN, y + 18 + nth * 15, line, 'faint')),
    '</svg>\n',
  ].join('\n')
}

function row({ title, kind, ratio: { lower, median, upper } }: Dot, y: number, x: (ratio: number) => number) {
  const [left, middle, right] = [lower, median, upper].map((ratio) => coordinate(x(ratio)))
  return [
    words(28, y + 4, title, ''),
    `<path class="${kind}" stroke-width="2" d="M${left} ${coordinate(y)}H${right}"/>`,
    `<circle class="${kind}" cx="${middle}" cy="${coordinate(y)}" r="4.5"/>`,
    `<text x="${WIDTH - 12}" y="${coordinate(y + 4)}" text-anchor="end">${median.toFixed(2)}</text>`,
  ]
}

const words = (x: number, y: number, text: string, look: string) =>
  `<text x="${coordinate(x)}" y="${coordinate(y)}"${look === '' ? '' : ` class="${look}"`}>${escaped(text)}</text>`

/** Marks of an axis, each twice the mark before, around all ratios; includes 1 and at least one doubling. */
export function doublings(ratios: readonly Spread[]): number[] {
  const least = Math.min(1, ...ratios.map(({ lower }) => lower))
  const most = Math.max(2, ...ratios.map(({ upper }) => upper))
  const first = Math.floor(Math.log2(least))
  const last = Math.ceil(Math.log2(most))
  return Array.from({ length: last - first + 1 }, (_, step) => 2 ** (first + step))
}

/** Returns the pictures of a run, by file name. Pictures without rows are left out. */
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
