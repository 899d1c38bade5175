import { labelValue, OTHER } from './label-value.ts'

/** Most faults that have series of their own: whoever may inject faults may name each of them anew. */
const MAX_NAMES = 2_000

/** The values of the label `fault`: the first 2,000 names of faults, and `_other` for all further ones. */
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
