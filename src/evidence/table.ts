/** Types of columns: `json` is a list or an object as JSON text, `time` in UTC, `number` with fractions. */
export type ColumnType = 'text' | 'json' | 'time' | 'number' | 'count' | 'flag'

/** A value of a column. Times are milliseconds since the Unix epoch. */
export type Cell = string | number | boolean | null

/** A column as exports and SQL see it. */
export interface Column {
  readonly name: string
  readonly type: ColumnType
  readonly isNullable: boolean
}

/** A table whose rows come from sources, such as the summaries of runs. */
export interface Table<Source> {
  readonly name: string
  readonly columns: readonly Column[]
  /** Returns the rows of a source, with a cell for each column. */
  rowsOf(source: Source): readonly (readonly Cell[])[]
}

/** The name of a column, its type (`?`: nulls may occur), and the function that finds the cell of a row. */
export type ColumnOf<Row, Source> = readonly [
  name: string,
  type: ColumnType | `${ColumnType}?`,
  cellOf: (row: Row, source: Source) => Cell,
]

/** Returns the table with the rows that `rowsOf` finds in a source. */
export function tableOf<Row, Source>(
  name: string,
  rowsOf: (source: Source) => readonly Row[],
  columns: readonly ColumnOf<Row, Source>[],
): Table<Source> {
  return {
    name,
    columns: columns.map(([column, type]) => ({
      name: column,
      type: type.replace('?', '') as ColumnType,
      isNullable: type.endsWith('?'),
    })),
    rowsOf: (source) => rowsOf(source).map((row) => columns.map(([, , cellOf]) => cellOf(row, source))),
  }
}

const sqlTypes: Readonly<Record<ColumnType, string>> = {
  text: 'VARCHAR',
  json: 'VARCHAR',
  time: 'TIMESTAMP',
  number: 'DOUBLE',
  count: 'BIGINT',
  flag: 'BOOLEAN',
}

/** Returns the SQL statement that creates the table. */
export function createTable({ name, columns }: Pick<Table<never>, 'name' | 'columns'>): string {
  const lines = columns.map(
    (column) => `"${column.name}" ${sqlTypes[column.type]}${column.isNullable ? '' : ' NOT NULL'}`,
  )
  return `CREATE TABLE "${name}" (${lines.join(', ')})`
}

/** Returns a cell as it stands in JSON Lines and CSV: times in ISO 8601. */
export const written = (cell: Cell, { type }: Column): Cell =>
  type === 'time' && typeof cell === 'number' ? new Date(cell).toISOString() : cell
