/** Has things taken one after another, whoever brings them: each waits until the one before it was taken. */
export class InTurn<Item> {
  readonly #take: (item: Item) => Promise<void> | undefined
  #turn: Promise<void> | undefined

  /** `take` returns a promise when it is not done at once. */
  constructor(take: (item: Item) => Promise<void> | undefined) {
    this.#take = take
  }

  /** A promise means "wait for it before the next one". */
  pass(item: Item): Promise<void> | undefined {
    const taken = this.#turn === undefined ? this.#take(item) : this.#turn.then(() => this.#take(item))
    const turn = taken?.finally(() => {
      if (this.#turn === turn) this.#turn = undefined
    })
    this.#turn = turn
    return turn
  }
}
