import { Cells } from './cells.ts'

/** A gauge. One that is read anew at each scrape is reset before: series that are not set again are gone. */
export class Level<Label extends string> extends Cells<Label> {
  readonly type = 'gauge'

  set(value: number): void
  set(labels: Readonly<Record<Label, string>>, value: number): void
  set(...given: [number] | [Readonly<Record<Label, string>>, number]): void {
    if (given.length === 1) this.cell().value = given[0]
    else this.cell(given[0]).value = given[1]
  }

  reset(): void {
    this.before = this.cells
    this.cells = new Map()
  }
}
