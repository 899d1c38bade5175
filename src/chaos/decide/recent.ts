/**
 * A map that forgets what has not been set for long: it holds at least the `most` latest, at most twice as many. Two
 * maps in turn, because taking the oldest out of one map costs ever more the more was taken out of it before.
 */
export class Recent<Value> {
  readonly #most: number
  #young = new Map<string, Value>()
  #old = new Map<string, Value>()

  constructor(most: number) {
    this.#most = most
  }

  /** How many there may be; those that were set twice may count twice. */
  get size(): number {
    return this.#young.size + this.#old.size
  }

  get(key: string): Value | undefined {
    return this.#young.get(key) ?? this.#old.get(key)
  }

  set(key: string, value: Value): void {
    if (this.#young.size >= this.#most && !this.#young.has(key)) {
      this.#old = this.#young
      this.#young = new Map()
    }
    this.#young.set(key, value)
  }
}
