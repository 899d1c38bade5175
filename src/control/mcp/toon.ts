import { encode, escapeString, rawString } from '@toon-format/toon'
import { hasUnprintable, printableJson } from '../../telemetry/printable.ts'

/** Version of the format. Decoders before 4.0 refuse or misread nested columns, and decoders up to 2.1 `\u` escapes. */
export const TOON_VERSION = '4.4'

/** Significant digits of fractions. */
const DIGITS = 4

type Row = Readonly<Record<string, unknown>>

/**
 * Returns rows in TOON, for models. With `by`, each value of this column gets a table of its own, without this column.
 * Objects become nested columns, null stands for absent values and empty objects, and a list in a cell becomes words, or
 * JSON if an item is no word. Fractions have 4 significant digits, and times whole seconds; whole numbers stay exact.
 * Control and direction characters are `\u` escapes. For rows of few levels: the encoder recurses.
 */
export function toonOf(rows: readonly object[], by?: string): string {
  const given = rounded(JSON.parse(JSON.stringify(rows))) as readonly Row[]
  return printableJson(encode(by === undefined ? tableOf(given) : tablesBy(by, given)))
}

/** Rounds numbers and times. U+FFFD replaces halves of surrogate pairs, because the encoder refuses them. */
function rounded(value: unknown): unknown {
  if (typeof value === 'number') return roundedNumber(value)
  if (typeof value === 'string') return roundedTime(value).replaceAll(/\p{Surrogate}/gu, '\ufffd')
  if (Array.isArray(value)) return value.map(rounded)
  if (!isRow(value)) return value
  return Object.fromEntries(
    Object.entries(value).map(([key, inner]) => [String(rounded(key)), rounded(inner)] as const),
  )
}

/** Rounds a fraction to 4 significant digits, and a fraction beyond 1,000 to a whole number. */
export function roundedNumber(value: number): number {
  if (Number.isInteger(value)) return value
  return Math.abs(value) < 10 ** (DIGITS - 1) ? Number(value.toPrecision(DIGITS)) : Math.round(value)
}

/** Rounds down: a run at 09:00:00.800 is among the runs from 09:00:00 on. */
const roundedTime = (text: string): string => text.replace(/^([\d-]{10}T[\d:]{8})\.\d{3}Z$/, '$1Z')

const isRow = (value: unknown): value is Row =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

function tablesBy(column: string, rows: readonly Row[]): Readonly<Record<string, readonly Row[]>> {
  const groups = new Map<string, Row[]>()
  for (const { [column]: value, ...row } of rows) {
    const group = groups.get(String(value)) ?? []
    groups.set(String(value), group)
    group.push(row)
  }
  return Object.fromEntries([...groups].map(([value, group]) => [value, tableOf(group)]))
}

/** Returns rows with the same columns each: otherwise the encoder makes no table of the rows. */
function tableOf(rows: readonly (Row | null)[]): Row[] {
  const names = new Set(rows.flatMap((row) => Object.keys(row ?? {})))
  const columns = [...names].flatMap((name): [string, readonly unknown[]][] => {
    const cells = rows.map((row) => (row !== null && Object.hasOwn(row, name) ? row[name] : null))
    const isNested = cells.some(isRow) && cells.every((cell) => cell === null || isRow(cell))
    if (!isNested) return [[name, cells.map(cellOf)]]
    const nested = tableOf(cells)
    // TOON has no column of empty objects only.
    return Object.keys(nested[0]!).length === 0 ? [] : [[name, nested]]
  })
  return rows.map((_, at) => Object.fromEntries(columns.map(([name, cells]) => [name, cells[at]])))
}

function cellOf(value: unknown): unknown {
  if (typeof value === 'string') return textOf(value)
  if (typeof value !== 'object' || value === null) return value
  return textOf(Array.isArray(value) && value.every(isWord) ? value.join(' ') : JSON.stringify(value))
}

/** Quotes texts with control or direction characters, because escapes stand only between quotes. */
const textOf = (text: string) => (hasUnprintable(text) ? rawString(`"${escapeString(text)}"`) : text)

/** True for texts without white space, except texts that look like JSON. */
const isWord = (item: unknown): boolean => typeof item === 'string' && /^[^\s[]\S*$/.test(item)
