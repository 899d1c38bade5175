import { inWords } from './figures.ts'
import type { Column, Findings, Row, StudySeries, StudyTable } from './study.ts'

export interface Told extends Findings {
  readonly name: string
  readonly about: string
  readonly seed: number
  readonly seeds: number
}

/**
 * Returns the findings as text: the model, all tables except long tables, and the conclusions. Unless `brief`, adds the
 * lines over time as bars of characters.
 */
export function textOf({ name, about, model, tables, series, seen }: Told, brief = false): string {
  const parts = [
    `${name}: ${model}`,
    about,
    ...tables
      .filter(({ isLong }) => isLong !== true)
      .map(({ title, ...table }) => `${title}\n${tableText(table)}`),
    ...(brief ? [] : series.map(seriesText)),
    ['Conclusions', ...seen.map((sentence) => `- ${sentence}`)].join('\n'),
  ]
  return parts.join('\n\n')
}

export function cellText({ key, unit, absent = '–' }: Column, row: Row): string {
  const value = row[key] ?? null
  if (value === null) return absent
  return typeof value === 'number' && unit !== undefined ? inWords(value, unit) : String(value)
}

function tableText({ columns, rows, joins }: Pick<StudyTable, 'columns' | 'rows' | 'joins'>): string {
  const { shown, alike } = withoutRepeats(rows, joins)
  const lines = [
    columns.map(({ label }) => label),
    ...shown.map((row) => columns.map((column) => cellText(column, row))),
  ]
  const widths = columns.map((_, at) => Math.max(...lines.map((cells) => cells[at]!.length)))
  const aligned = lines.map((cells) =>
    cells
      .map((cell, at) =>
        columns[at]!.unit === undefined ? cell.padEnd(widths[at]!) : cell.padStart(widths[at]!),
      )
      .join('  ')
      .trimEnd(),
  )
  return [...aligned, ...alike].join('\n')
}

/**
 * Drops rows that differ from an earlier row only in this column. Returns the other rows, and lines that name the
 * dropped rows.
 */
function withoutRepeats(rows: readonly Row[], column: string | undefined) {
  if (column === undefined) return { shown: rows, alike: [] }
  const found = new Map<string, { readonly row: Row; readonly others: unknown[] }>()
  for (const row of rows) {
    const rest = JSON.stringify({ ...row, [column]: null })
    const before = found.get(rest)
    if (before === undefined) found.set(rest, { row, others: [] })
    else before.others.push(row[column])
  }
  const all = [...found.values()]
  return {
    shown: all.map(({ row }) => row),
    alike: all.flatMap(({ row, others }) =>
      others.length === 0 ? [] : [`the same as ${row[column]}: ${others.join(', ')}`],
    ),
  }
}

const LEVELS = '▁▂▃▄▅▆▇█'

/**
 * Returns lines over time as text, with a character per point. The height of a character is relative to the highest
 * point of its line.
 */
function seriesText({ title, lines }: StudySeries): string {
  const width = Math.max(...lines.map(({ name }) => name.length))
  const drawn = lines.map(({ name, values }) => {
    const most = Math.max(...values)
    const levels = values.map(
      (value) => LEVELS[most === 0 ? 0 : Math.floor((value / most) * (LEVELS.length - 1))],
    )
    return `${name.padEnd(width)}  ${levels.join('')}  up to ${inWords(most, 'count')}`
  })
  return [title, ...drawn].join('\n')
}

/**
 * Returns all tables and lines as a CSV with one head. The first column names the table; columns of other tables are
 * empty. Lines over time have a row per second.
 */
export function csvOf({ tables, series }: Told): string {
  const all: readonly Row[] = [
    ...tables.flatMap(({ name, rows }) => rows.map((row) => ({ table: name, ...row }))),
    ...series.flatMap(({ name, atS, lines }) =>
      atS.map((seconds, at) => ({
        table: name,
        seconds,
        ...Object.fromEntries(lines.map(({ name, values }) => [name, values[at]!])),
      })),
    ),
  ]
  const head = [...new Set(all.flatMap((row) => Object.keys(row)))]
  return [head, ...all.map((row) => head.map((key) => row[key] ?? ''))]
    .map((cells) => cells.map(csvCell).join(','))
    .join('\n')
}

function csvCell(value: string | number): string {
  const text = String(value)
  return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
}
