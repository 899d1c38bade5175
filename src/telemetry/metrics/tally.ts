import { Counter, type Registry } from 'prom-client'

/** What a series has counted since it was read last. */
export interface Cell {
  readonly labels: Readonly<Record<string, string>>
  pending: number
}

export interface TallyOptions<Label extends string> {
  readonly name: string
  readonly help: string
  readonly labelNames: Label[]
  readonly registers: Registry[]
}

/**
 * A counter for hot paths. prom-client hashes and checks the labels at every `inc`, also on what `labels()` returned;
 * here a series is looked up once, counting is an addition, and prom-client is told at a scrape.
 */
export class Tally<Label extends string> {
  readonly #counter: Counter<Label>
  readonly #names: readonly Label[]
  readonly #cells = new Map<string, Cell>()

  constructor(options: TallyOptions<Label>) {
    const cells = this.#cells
    this.#names = options.labelNames
    this.#counter = new Counter({
      ...options,
      collect() {
        for (const cell of cells.values()) {
          if (cell.pending === 0) continue
          this.inc(cell.labels as Record<Label, string>, cell.pending)
          cell.pending = 0
        }
      },
    })
  }

  /** How many series there are. */
  get size(): number {
    return this.#cells.size
  }

  /** Whether its series have this label. */
  has(label: string): boolean {
    return (this.#names as readonly string[]).includes(label)
  }

  /** The series with these labels, to be kept by whoever counts often, until it is forgotten. */
  cell(labels: Readonly<Record<Label, string>>): Cell {
    let key = ''
    for (const name of this.#names) key += `${labels[name]}\0`
    const known = this.#cells.get(key)
    if (known !== undefined) return known
    const inOrder = this.#names.map((name) => [name, labels[name]] as const)
    const cell = { labels: Object.fromEntries(inOrder), pending: 0 }
    this.#cells.set(key, cell)
    return cell
  }

  /** Counts `by`, 1 unless told otherwise. Names that others chose have to be made fit before (`labelValue`). */
  inc(labels = {} as Readonly<Record<Label, string>>, by = 1): void {
    this.cell(labels).pending += by
  }

  /** Removes the series whose labels include these, and their counts. */
  forget(some: Readonly<Partial<Record<Label, string>>>): void {
    const wanted = Object.entries(some) as [Label, string][]
    for (const [key, { labels }] of this.#cells) {
      if (!wanted.every(([name, value]) => labels[name] === value)) continue
      this.#cells.delete(key)
      this.#counter.remove(labels as Record<Label, string>)
    }
  }
}
