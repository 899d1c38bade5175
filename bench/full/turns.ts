/**
 * Calls that are due at moments of their own, made by callers of which each makes one at a time. One that finds no free caller waits for
 * one, and its time runs: so the load of a slow server is not spared what it would have got from agents that do not wait.
 */
export class Turns<Caller> {
  readonly #due: ArrayLike<number>
  readonly #now: () => number
  readonly #call: (caller: Caller) => Promise<void>
  readonly #free: Caller[]
  readonly #latencies: Float64Array
  #arrived = 0
  #begun = 0
  #over = 0
  #resolve: (latencies: Float64Array | undefined) => void = () => {}
  #reject: (error: unknown) => void = () => {}
  #isGivenUp = false

  /** How long each call took from when it was due, in their order; undefined when that was given up. Rejects with the first that fails. */
  readonly latencies = new Promise<Float64Array | undefined>((resolve, reject) => {
    this.#resolve = resolve
    this.#reject = reject
  })

  /** `due` and `now` are of one clock, in milliseconds. */
  constructor(
    callers: readonly Caller[],
    due: ArrayLike<number>,
    now: () => number,
    call: (caller: Caller) => Promise<void>,
  ) {
    this.#free = [...callers]
    this.#due = due
    this.#now = now
    this.#call = call
    this.#latencies = new Float64Array(due.length)
    this.#next()
  }

  /** So many calls are due by now, of which each is made or waits; returns whether one that came now found a free caller. */
  arrived(count: number): boolean {
    const waiting = this.#arrived - this.#begun
    const isPrompt = this.#free.length >= waiting + count - this.#arrived
    this.#arrived = count
    this.#next()
    return isPrompt
  }

  /** Makes no more calls, and waits for those that are under way. */
  giveUp(): void {
    this.#isGivenUp = true
    this.#next()
  }

  #next(): void {
    while (this.#begun < this.#arrived && this.#free.length > 0 && !this.#isGivenUp)
      void this.#make(this.#free.shift()!, this.#begun++)
    if (this.#over === this.#due.length) this.#resolve(this.#latencies)
    else if (this.#isGivenUp && this.#over === this.#begun) this.#resolve(undefined)
  }

  async #make(caller: Caller, index: number): Promise<void> {
    try {
      await this.#call(caller)
    } catch (error) {
      return this.#reject(error)
    }
    this.#latencies[index] = this.#now() - this.#due[index]!
    this.#over++
    this.#free.push(caller)
    this.#next()
  }
}
