import type { Cell } from './table.ts'

/** Returns a line of CSV (RFC 4180) without its line break. A null is empty, and an empty text is `""`. */
export const csvLine = (cells: readonly Cell[]): string => cells.map(quoted).join(',')

function quoted(cell: Cell): string {
  if (typeof cell !== 'string') return cell === null ? '' : String(cell)
  return cell === '' || /[",\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell
}

/** A field with the separator behind it; the end of the text also ends a field. */
const FIELD = /(?:"([^"]*(?:""[^"]*)*)"|([^",\r\n]*))(,|\r\n|\n|\r|$)/y

/** Returns the rows of a CSV text (RFC 4180), without empty lines. Throws an `Error` that names the row. */
export function csvRows(text: string): string[][] {
  const rows: string[][] = []
  let row: string[] = []
  FIELD.lastIndex = 0
  for (let at = 0; at < text.length || row.length > 0; at = FIELD.lastIndex) {
    const found = FIELD.exec(text)
    if (found === null) throw new Error(`row ${rows.length + 1} has a misplaced quotation mark`)
    const [, inQuotes, bare = '', separator] = found
    row.push(inQuotes?.replaceAll('""', '"') ?? bare)
    if (separator === ',') continue
    if (row.length > 1 || row[0] !== '') rows.push(row)
    row = []
  }
  return rows
}
