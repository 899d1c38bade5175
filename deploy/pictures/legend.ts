import type { Series } from './answers.ts'
import { colourOfLine } from './colours.ts'
import type { Panel } from './panels.ts'
import { ink, rectangle, shortened, text, widthOf, type Box } from './svg.ts'
import { withUnit } from './units.ts'

const ROW = 17
const SWATCH = 16
const GAP = 24
/** Space between a name or a value and the value on its right, in pixels. */
const AIR = 16
/** Largest width, in pixels: rows of a wider legend would be hard to follow. */
const WIDEST = 440

interface Entry {
  readonly name: string
  readonly colour: string
  readonly last: string
  readonly max: string
  /** The highest value, as a number. */
  readonly height: number
}

/** A legend: its height in pixels, and a function that draws the legend into a box. */
export interface Legend {
  readonly height: number
  draw(box: Box): string
}

/** Returns the names of lines with their last and highest values, as in Grafana; at most `most` pixels high. */
export function legend(panel: Panel, series: readonly Series[], width: number, most: number): Legend {
  const all = series.map((one, index) => entryOf(panel, one, colourOfLine(panel, one.name, index)))
  const value =
    AIR + Math.max(widthOf('last'), ...all.flatMap(({ last, max }) => [widthOf(last), widthOf(max)]))
  const natural = SWATCH + Math.max(...all.map(({ name }) => widthOf(name))) + 2 * value
  const columns = Math.max(
    1,
    Math.min(3, Math.floor((width + GAP) / (natural + GAP)), Math.ceil(all.length / 3)),
  )
  const room = Math.max(1, Math.floor(most / ROW) - 1) * columns
  const { shown, rest } = fitting(all, room)
  const lines = shown.length + (rest === '' ? 0 : 1)
  const rows = Math.ceil(lines / columns)
  const column = columns === 1 ? Math.min(width, WIDEST) : (width - GAP * (columns - 1)) / columns
  return {
    height: (rows + 1) * ROW,
    draw({ x, y }) {
      const place = (nth: number) => ({
        left: x + Math.floor(nth / rows) * (column + GAP),
        base: y + ((nth % rows) + 2) * ROW - 4,
      })
      const heads = Array.from({ length: Math.ceil(shown.length / rows) }, (_, nth) => {
        const right = place(nth * rows).left + column
        const look = { size: 10, colour: ink.faint, anchor: 'end' } as const
        return text(right, y + 11, 'max', look) + text(right - value, y + 11, 'last', look)
      })
      const { left, base } = place(shown.length)
      return [
        ...heads,
        ...shown.map((entry, nth) => drawn(entry, { ...place(nth), column, value })),
        ...(rest === '' ? [] : [text(left + SWATCH, base, rest, { colour: ink.faint })]),
      ].join('')
    },
  }
}

function entryOf(panel: Panel, { name, values }: Series, colour: string): Entry {
  const numbers = values.filter((value) => value !== null)
  const height = Math.max(...numbers)
  const last = numbers.at(-1)
  if (last === undefined) return { name, colour, last: '–', max: '–', height: 0 }
  return { name, colour, last: withUnit(last, panel.unit), max: withUnit(height, panel.unit), height }
}

/** Returns the entries with the highest values, in order, and a text about the rest. */
function fitting(all: readonly Entry[], room: number): { shown: readonly Entry[]; rest: string } {
  if (all.length <= room) return { shown: all, rest: '' }
  const byHeight = all.toSorted((one, other) => other.height - one.height)
  const kept = new Set(byHeight.slice(0, room - 1))
  const others = byHeight.slice(room - 1)
  const level = others.every(({ height }) => height === 0) ? ', all 0' : ''
  return { shown: all.filter((entry) => kept.has(entry)), rest: `and ${others.length} more${level}` }
}

interface Cell {
  readonly left: number
  readonly base: number
  readonly column: number
  readonly value: number
}

function drawn({ name, colour, last, max }: Entry, { left, base, column, value }: Cell): string {
  return [
    rectangle({ x: left, y: base - 6, width: 11, height: 4 }, `fill="${colour}"`),
    text(left + SWATCH, base, shortened(name, column - SWATCH - 2 * value + AIR - 4)),
    text(left + column - value, base, last, { anchor: 'end' }),
    text(left + column, base, max, { anchor: 'end' }),
  ].join('')
}
