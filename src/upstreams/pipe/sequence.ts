/** Handles items in order: each waits until the previous item is done. */
export class Sequence<Item> {
  readonly #take: (item: Item) => Promise<void> | undefined
  #passed: Promise<void> | undefined

  /** `take` returns a promise when not done at once. */
  constructor(take: (item: Item) => Promise<void> | undefined) {
    this.#take = take
  }

  /** Handles an item after all earlier items. A returned promise means: wait before the next item. */
  pass(item: Item): Promise<void> | undefined {
    const taken = this.#passed === undefined ? this.#take(item) : this.#passed.then(() => this.#take(item))
    const passed = taken?.finally(() => {
      if (this.#passed === passed) this.#passed = undefined
    })
    this.#passed = passed
    return passed
  }
}
