import type { Metric, Registry } from 'prom-client'
import { headOf, numeral, type Labels } from './format.ts'

/** One series. Who changes it often keeps it, until it is forgotten. */
export interface Cell {
  readonly labels: Labels
  value: number
  /** What its line begins with; made when it is written first. */
  head: string | undefined
}

export interface CellsOptions<Label extends string> {
  readonly name: string
  readonly help: string
  readonly labelNames: readonly Label[]
  readonly registers: readonly Registry[]
}

/**
 * A metric of one value for each set of labels: what counters and gauges have in common. For hot paths and for
 * thousands of series: prom-client's hash and check the labels at every change, also on what `labels()` returned, and
 * can only be read as a whole. A registry of prom-client reads these like metrics of its own.
 */
export abstract class Cells<Label extends string> {
  abstract readonly type: 'counter' | 'gauge'
  readonly name: string
  readonly help: string
  readonly aggregator = 'sum'
  protected cells = new Map<string, Cell>()
  /** Series of before a reset: most come back, and their lines begin as they did. */
  protected before: ReadonlyMap<string, Cell> | undefined
  readonly #names: readonly Label[]

  constructor({ name, help, labelNames, registers }: CellsOptions<Label>) {
    this.name = name
    this.help = help
    this.#names = labelNames
    for (const registry of registers) registry.registerMetric(this as unknown as Metric)
    if (labelNames.length === 0) this.cell()
  }

  /** How many series there are. */
  get size(): number {
    return this.cells.size
  }

  /** Whether its series have this label. */
  has(label: string): boolean {
    return (this.#names as readonly string[]).includes(label)
  }

  /** The series with these labels. Names that others chose have to be made fit before (`labelValue`). */
  cell(labels = {} as Readonly<Record<Label, string>>): Cell {
    let key = ''
    for (const name of this.#names) key += `${labels[name]}\0`
    const known = this.cells.get(key)
    if (known !== undefined) return known
    const cell = this.#made(key, labels)
    this.cells.set(key, cell)
    return cell
  }

  /** Adds to a series, 1 unless told otherwise. */
  inc(labels?: Readonly<Record<Label, string>>, by = 1): void {
    this.cell(labels).value += by
  }

  /** Removes these series: one look at each. */
  forget(isGone: (labels: Labels) => boolean): void {
    for (const [key, { labels }] of this.cells) if (isGone(labels)) this.cells.delete(key)
  }

  /** Its lines, one after the other, each as of when it is asked for. */
  *written(): Generator<string> {
    for (const cell of this.cells.values())
      yield `${(cell.head ??= headOf(this.name, cell.labels))}${numeral(cell.value)}\n`
  }

  /** The same, for a registry of prom-client. */
  get() {
    const { name, help, type, aggregator } = this
    const values = Array.from(this.cells.values(), ({ labels, value }) => ({ labels, value }))
    return Promise.resolve({ name, help, type, aggregator, values })
  }

  /** Sets all of it back. */
  abstract reset(): void

  #made(key: string, labels: Readonly<Record<Label, string>>): Cell {
    const known = this.before?.get(key)
    if (known !== undefined) {
      known.value = 0
      return known
    }
    const inOrder = this.#names.map((name) => [name, labels[name]] as const)
    return { labels: Object.fromEntries(inOrder), value: 0, head: undefined }
  }
}
