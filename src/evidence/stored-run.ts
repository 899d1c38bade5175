import { z } from 'zod'
import { parseRecord } from '../chaos/journal/read-chain.ts'
import { isObject, parseJson } from '../protocol/jsonrpc.ts'
import { runSummary, type RunSummary } from './summary.ts'

const storedSummary = runSummary.extend({
  windows: z
    .array(runSummary.shape.windows.element.extend({ cells: z.string().regex(/^(\d+:\d+( \d+:\d+)*)?$/) }))
    .max(64),
})

/** A summary with the durations of each window as text: `cell:count` pairs, separated by spaces. */
export type StoredRun = z.output<typeof storedSummary>

/** An entry of the index; `at`: milliseconds since the Unix epoch. */
export type IndexEntry = { readonly at: number } & (
  | { readonly kind: 'run'; readonly run: StoredRun }
  /** The process ended while writing: the last line was cut, and its run is written again if its record is kept. */
  | { readonly kind: 'cut'; readonly bytes: number }
  /** An earlier index could not be trusted; its readable entries stand before this entry. */
  | { readonly kind: 'damaged'; readonly why: string }
)

/** Returns a summary as stored: durations as one text per window, which takes little memory until somebody reads it. */
export const toStored = (run: RunSummary): StoredRun => ({
  ...run,
  windows: run.windows.map(({ cells, ...window }) => ({
    ...window,
    cells: cells.map((pair) => pair.join(':')).join(' '),
  })),
})

export type RunField = keyof RunSummary

/** The fields of a summary. */
export const runFields = Object.keys(runSummary.shape) as readonly RunField[]

/** The runs and the parts of their summaries that a reader asks for. */
export interface Wanted<Field extends RunField = RunField> {
  /** Default: all fields. */
  readonly fields?: readonly Field[]
  /** The arms whose durations are read; default: all. Windows of other arms have no cells. */
  readonly arms?: readonly string[]
  /** Returns whether a run is read; default: all runs. */
  readonly only?: (run: Pick<RunSummary, 'id' | 'name'>) => boolean
}

/**
 * Returns a function that reads the wanted parts of a stored summary: `other` for a run that is not wanted, undefined for
 * another format.
 */
export function readerOf<Field extends RunField>({
  fields,
  arms,
  only,
}: Wanted<Field>): (run: StoredRun) => Pick<RunSummary, Field> | 'other' | undefined {
  const mask = Object.fromEntries((fields ?? []).map((field) => [field, true as const]))
  const schema =
    fields === undefined ? storedSummary : z.object(storedSummary.pick({ format: true, ...mask }).shape)
  const isRead = fields?.includes('windows' as Field) !== false
  return (run) => {
    if (!isObject(run)) return undefined
    if (only?.(run) === false) return 'other'
    if (!isRead) return schema.safeParse(run).data as Pick<RunSummary, Field> | undefined
    if (!Array.isArray(run.windows)) return undefined
    // Durations that nobody asks for are most of a line.
    const stored = run.windows.map((one) => (arms?.includes(one.arm) === false ? { ...one, cells: '' } : one))
    const read = schema.safeParse({ ...run, windows: stored }).data as StoredRun | undefined
    if (read === undefined) return undefined
    return { ...read, windows: read.windows.map(lazily) }
  }
}

/** Durations take eight times as much memory as pairs: a window reads its text whenever somebody asks. */
const lazily = ({ cells: text, ...window }: StoredRun['windows'][number]) => ({
  ...window,
  get cells() {
    return cellsIn(text)
  },
})

/** Whether the wanted parts include any duration. */
export const needsCells = ({ fields, arms }: Wanted): boolean =>
  fields?.includes('windows') !== false && arms?.length !== 0

const CELLS = Buffer.from('"cells":"')
const QUOTE = '"'.charCodeAt(0)

/**
 * Returns the entry of a record without the durations of its windows, which are most of a line; undefined for other
 * text. In JSON, unescaped quotes on both sides make `cells` a key.
 */
export function entryWithoutCells(record: Buffer): Record<string, unknown> | undefined {
  let text = ''
  let from = 0
  for (let at = record.indexOf(CELLS); at !== -1; at = record.indexOf(CELLS, from)) {
    text += record.toString('utf8', from, at + CELLS.length)
    from = record.indexOf(QUOTE, at + CELLS.length)
    if (from === -1) return undefined
  }
  const entry = parseJson(text + record.toString('utf8', from))
  // Text of another form: a quote in the durations, for example.
  return isObject(entry) ? entry : parseRecord(record)
}

const COLON = ':'.charCodeAt(0)
const SPACE = ' '.charCodeAt(0)
const ZERO = '0'.charCodeAt(0)

/** Returns the pairs of checked text. Splitting the text took ten times as long. */
function cellsIn(text: string): [number, number][] {
  const cells: [number, number][] = []
  let cell = 0
  let number = 0
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at)
    if (code === COLON) cell = number
    else if (code === SPACE) cells.push([cell, number])
    number = code === COLON || code === SPACE ? 0 : number * 10 + (code - ZERO)
  }
  if (text !== '') cells.push([cell, number])
  return cells
}
