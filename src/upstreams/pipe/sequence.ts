/** Has things taken one after another, whoever brings them: each waits until the one before it was taken. */
export class Sequence<Item> {
  readonly #take: (item: Item) => Promise<void> | undefined
  #passed: Promise<void> | undefined

  /** `take` returns a promise when it is not done at once. */
  constructor(take: (item: Item) => Promise<void> | undefined) {
    this.#take = take
  }

  /** A promise means "wait for it before the next one". */
  pass(item: Item): Promise<void> | undefined {
    const taken = this.#passed === undefined ? this.#take(item) : this.#passed.then(() => this.#take(item))
    const passed = taken?.finally(() => {
      if (this.#passed === passed) this.#passed = undefined
    })
    this.#passed = passed
    return passed
  }
}
