import { Cells } from './cells.ts'

/** A counter: its series only grow, until they are forgotten. */
export class Tally<Label extends string> extends Cells<Label> {
  readonly type = 'counter'

  reset(): void {
    for (const cell of this.cells.values()) cell.value = 0
  }
}
