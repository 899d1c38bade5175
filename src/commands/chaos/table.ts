import { printable } from '../../telemetry/printable.ts'

/** No column is cut to less, in characters. */
const LEAST = 6

/** Between columns. */
const GAP = '  '

/** Rows under a head, in columns as wide as their longest cell; past `width` the widest ones are cut. */
export function table(
  head: readonly string[],
  rows: readonly (readonly (string | number)[])[],
  width: number,
): string[] {
  const lines = [head, ...rows.map((row) => row.map((cell) => printable(String(cell))))]
  const widths = head.map((_, column) => Math.max(...lines.map((line) => line[column]?.length ?? 0)))
  const total = () => widths.reduce((sum, wide) => sum + wide, GAP.length * (head.length - 1))
  for (let over = total() - width; over > 0; over--) {
    const widest = widths.indexOf(Math.max(...widths))
    if (widths[widest]! <= LEAST) break
    widths[widest]!--
  }
  const isNumber = head.map((_, column) => rows.every((row) => typeof row[column] === 'number'))
  return lines.map((line) =>
    line
      .map((cell, column) => {
        const cut = fitted(cell, widths[column]!)
        return isNumber[column] ? cut.padStart(widths[column]!) : cut.padEnd(widths[column]!)
      })
      .join(GAP)
      .trimEnd(),
  )
}

const fitted = (cell: string, width: number) =>
  cell.length <= width ? cell : `${cell.slice(0, Math.max(1, width - 1))}…`
