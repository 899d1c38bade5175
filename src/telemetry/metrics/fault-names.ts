import { labelValue, OTHER } from './label-value.ts'

/** Most faults with separate series. A limit is needed, because clients that inject faults choose the names. */
const MAX_NAMES = 2_000

/** The values of the label `fault`: the first 2,000 names of faults, and `_other` for all further names. */
export class FaultNames {
  readonly #labels = new Map<string, string>()

  labelOf(name: string): string {
    const known = this.#labels.get(name)
    if (known !== undefined) return known
    if (this.#labels.size >= MAX_NAMES) return OTHER
    const label = labelValue(name)
    this.#labels.set(name, label)
    return label
  }
}
