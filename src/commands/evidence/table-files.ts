import { randomBytes } from 'node:crypto'
import { lstat, open, rename, rm, type FileHandle } from 'node:fs/promises'
import { join } from 'node:path'
import { type BasicType, ByteWriter, ParquetWriter, schemaFromColumnData } from 'hyparquet-writer'
import { csvLine } from '../../evidence/csv.ts'
import { type Cell, type Column, type ColumnType, type Table, written } from '../../evidence/table.ts'
import { TABLES_SCHEMA } from '../../evidence/tables.ts'
import type { Cancellation } from '../../mesh/cancel.ts'
import { nextTurn } from '../../mesh/clock.ts'
import { makeFolder } from '../../units/folder.ts'
import { UnusableInput } from '../shared/arguments.ts'

export const tableFormats = ['parquet', 'jsonl', 'csv'] as const
export type TableFormat = (typeof tableFormats)[number]

/** A written table. */
export interface TableFile {
  readonly table: string
  readonly file: string
  readonly rows: number
  readonly bytes: number
}

/** Turns rows into bytes. */
interface Encoder {
  /** Returns the bytes of rows; the bytes are valid until the next call. */
  add(rows: readonly (readonly Cell[])[]): Uint8Array | string
  end(): Uint8Array | string
}

/** Rows encoded in one turn of the event loop: 42 columns take about 50 ms. A row group of Parquet holds as many. */
const ROWS_A_TURN = 1_000

/** Tables with the sources of their rows. */
export interface FilledTables {
  readonly tables: readonly Pick<Table<never>, 'name' | 'columns'>[]
  /** Yields the rows of each table, source by source. */
  rows(): AsyncIterable<readonly (readonly (readonly Cell[])[])[]>
}

/** Returns tables with their sources. The sources are read once. */
export const filled = <Source>(
  tables: readonly Table<Source>[],
  sources: Iterable<Source> | AsyncIterable<Source>,
): FilledTables => ({
  tables,
  async *rows() {
    for await (const source of sources) yield tables.map((table) => table.rowsOf(source))
  },
})

/**
 * Writes a file for each table to a folder, which is created if necessary. Holds few of the rows. Each file appears as a
 * whole, and no file changes unless all tables could be written. `stop`: ends the writing, and leaves all files as they
 * were. Rejects with an `UnusableInput`, or with the error of the operating system.
 */
export async function writeTables(
  folder: string,
  format: TableFormat,
  parts: readonly FilledTables[],
  stop?: Cancellation,
): Promise<readonly TableFile[]> {
  makeFolder(folder)
  const drafts: Draft[] = []
  try {
    for (const part of parts) {
      const own: Draft[] = []
      for (const table of part.tables) {
        own.push(await Draft.open(folder, format, table))
        drafts.push(own.at(-1)!)
      }
      for await (const rows of part.rows()) {
        if (stop?.aborted === true)
          throw new UnusableInput(`interrupted: no ${format} file in ${folder} was changed`)
        for (const [at, draft] of own.entries()) await draft.add(rows[at]!)
      }
    }
    const files: TableFile[] = []
    for (const draft of drafts) files.push(await draft.end())
    for (const draft of drafts) await draft.requireFree()
    for (const draft of drafts) await draft.publish()
    return files
  } catch (error) {
    for (const draft of drafts) await draft.discard()
    throw error
  }
}

/** A file under another name until it is complete. */
class Draft {
  readonly #file: string
  readonly #draft: string
  readonly #handle: FileHandle
  readonly #table: Pick<Table<never>, 'name'>
  readonly #encoder: Encoder
  #pending: (readonly Cell[])[] = []
  #rows = 0

  private constructor(
    file: string,
    draft: string,
    handle: FileHandle,
    table: Pick<Table<never>, 'name'>,
    encoder: Encoder,
  ) {
    this.#file = file
    this.#draft = draft
    this.#handle = handle
    this.#table = table
    this.#encoder = encoder
  }

  static async open(
    folder: string,
    format: TableFormat,
    table: Pick<Table<never>, 'name' | 'columns'>,
  ): Promise<Draft> {
    const file = join(folder, `${table.name}.${format}`)
    // Nobody else can guess the name, and so nobody can lay a link to another file there.
    const draft = `${file}.${randomBytes(6).toString('hex')}.new`
    return new Draft(file, draft, await open(draft, 'wx'), table, encoders[format](table))
  }

  async add(rows: readonly (readonly Cell[])[]): Promise<void> {
    this.#pending.push(...rows)
    if (this.#pending.length >= ROWS_A_TURN) await this.#flush()
  }

  async #flush(): Promise<void> {
    this.#rows += this.#pending.length
    await writeAll(this.#handle, this.#encoder.add(this.#pending))
    this.#pending = []
    await nextTurn()
  }

  async end(): Promise<TableFile> {
    if (this.#pending.length > 0) await this.#flush()
    await writeAll(this.#handle, this.#encoder.end())
    const { size } = await this.#handle.stat()
    await this.#handle.close()
    return { table: this.#table.name, file: this.#file, rows: this.#rows, bytes: size }
  }

  /** Rejects when a folder has the name of the file: the rename would fail after the renames of other tables. */
  async requireFree(): Promise<void> {
    const found = await lstat(this.#file).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT') throw error
    })
    if (found?.isDirectory() === true) throw new UnusableInput(`${this.#file}: it is a folder`)
  }

  publish(): Promise<void> {
    return rename(this.#draft, this.#file)
  }

  async discard(): Promise<void> {
    await this.#handle.close().catch(() => undefined)
    await rm(this.#draft, { force: true })
  }
}

/** `writeFile` goes on after a short write, and `write` does not. */
const writeAll = (file: FileHandle, bytes: Uint8Array | string): Promise<void> => file.writeFile(bytes)

const encoders: Readonly<Record<TableFormat, (table: Pick<Table<never>, 'name' | 'columns'>) => Encoder>> = {
  parquet: ({ name, columns }) => {
    const writer = new ByteWriter()
    const dataOf = (rows: readonly (readonly Cell[])[]) =>
      columns.map((column, at) => ({
        name: column.name,
        type: parquetTypes[column.type],
        nullable: column.isNullable,
        data: rows.map((row) => parquetValue(row[at] ?? null, column)),
      }))
    const parquet = new ParquetWriter({
      writer,
      schema: schemaFromColumnData({ columnData: dataOf([]) }),
      codec: 'SNAPPY',
      createdBy: 'breakwater',
      kvMetadata: [
        { key: 'breakwater.table', value: name },
        { key: 'breakwater.schema', value: String(TABLES_SCHEMA) },
      ],
    })
    const taken = () => {
      const bytes = writer.getBytes()
      writer.index = 0
      return bytes
    }
    return {
      add(rows) {
        void parquet.write({ columnData: dataOf(rows), rowGroupSize: rows.length })
        return taken()
      },
      end() {
        void parquet.finish()
        return taken()
      },
    }
  },
  jsonl: ({ columns }) => ({
    add: (rows) =>
      rows
        .map((row) => {
          const cells = columns.map((column, at) => [column.name, written(row[at] ?? null, column)])
          return `${JSON.stringify(Object.fromEntries(cells))}\n`
        })
        .join(''),
    end: () => '',
  }),
  csv: ({ columns }) => {
    let head = `${csvLine(columns.map(({ name }) => name))}\n`
    const taken = () => {
      const line = head
      head = ''
      return line
    }
    return {
      add: (rows) =>
        taken() +
        rows
          .map((row) => `${csvLine(columns.map((column, at) => written(row[at] ?? null, column)))}\n`)
          .join(''),
      end: taken,
    }
  },
}

const parquetTypes: Readonly<Record<ColumnType, BasicType>> = {
  text: 'STRING',
  json: 'STRING',
  time: 'TIMESTAMP',
  number: 'DOUBLE',
  count: 'INT64',
  flag: 'BOOLEAN',
}

function parquetValue(cell: Cell, { type }: Column): Cell | bigint | Date {
  if (typeof cell !== 'number') return cell
  if (type === 'count') return BigInt(cell)
  return type === 'time' ? new Date(cell) : cell
}
