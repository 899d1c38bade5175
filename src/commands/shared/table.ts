import { type Paint, plain, type Tone } from '../../telemetry/colours.ts'
import { printable } from '../../telemetry/printable.ts'

export interface Toned {
  readonly text: string
  readonly tone: Tone
}

export type Cell = string | number | Toned

/** Minimum width of a shortened column, in characters. */
const LEAST = 6

const GAP = '  '

/**
 * Returns the lines of a table: a heading, and rows in columns as wide as their longest cell. Shortens the widest
 * columns if the table is wider than `width`.
 */
export function table(
  head: readonly string[],
  rows: readonly (readonly Cell[])[],
  width: number,
  paint: Paint = plain,
): string[] {
  const lines = [head, ...rows.map((row) => row.map((cell) => printable(textOf(cell))))]
  const widths = head.map((_, column) => Math.max(...lines.map((line) => line[column]?.length ?? 0)))
  const total = () => widths.reduce((sum, wide) => sum + wide, GAP.length * (head.length - 1))
  for (let over = total() - width; over > 0; over--) {
    const widest = widths.indexOf(Math.max(...widths))
    if (widths[widest]! <= LEAST) break
    widths[widest]!--
  }
  const isNumber = head.map((_, column) => rows.every((row) => typeof row[column] === 'number'))
  return lines.map((line, at) => {
    const cells = line.map((cell, column) => {
      const cut = fitted(cell, widths[column]!)
      return isNumber[column] ? cut.padStart(widths[column]!) : cut.padEnd(widths[column]!)
    })
    // Trims trailing spaces before colours are added; later, colour codes would follow the spaces.
    const last = cells.length - 1
    if (last >= 0) cells[last] = cells[last]!.trimEnd()
    const painted = cells.map((cell, column) => {
      const tone = at === 0 ? 'aside' : toneOf(rows[at - 1]![column])
      return tone === undefined || cell === '' ? cell : paint(tone, cell)
    })
    return painted.join(GAP).trimEnd()
  })
}

const textOf = (cell: Cell): string => (typeof cell === 'object' ? cell.text : String(cell))

const toneOf = (cell: Cell | undefined): Tone | undefined =>
  typeof cell === 'object' ? cell.tone : undefined

const fitted = (cell: string, width: number) =>
  cell.length <= width ? cell : `${cell.slice(0, Math.max(1, width - 1))}…`
