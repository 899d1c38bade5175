import type { Dice } from '../../mesh/dice.ts'

/** Every so many steps the state is drawn afresh, so that no step is further than this from one that is known. */
const BLOCK = 4096

/** What a chain says of one step. */
export interface Step {
  readonly on: boolean
  /** The draw that decided it. */
  readonly u: number
}

/**
 * A two-state chain (Gilbert): on with probability `rate` over time, for `meanLength` steps on average. It leaves
 * a burst with 1 / meanLength, enters one with rate / (meanLength · (1 − rate)), and begins in its long-term state.
 * The draw of a step depends on its index only, so that any step can be asked for, in any order, in any process.
 */
export class Bursts {
  readonly #draw: (index: number) => number
  readonly #rate: number
  readonly #leave: number
  readonly #enter: number
  #index = -1
  #on = false

  /** `purpose` sets the chain apart from others; chains of one purpose share their draws. */
  constructor(dice: Dice, purpose: string, rate: number, meanLength: number) {
    this.#draw = (index) => dice(String(index), purpose)
    this.#rate = rate
    this.#leave = rate === 1 ? 0 : 1 / meanLength
    this.#enter = rate === 1 ? 1 : rate / (meanLength * (1 - rate))
  }

  at(index: number): Step {
    const block = index - (index % BLOCK)
    if (index < this.#index || this.#index < block) {
      this.#index = block
      this.#on = this.#draw(block) < this.#rate
    }
    while (this.#index < index) {
      const u = this.#draw(++this.#index)
      this.#on = this.#on ? u >= this.#leave : u < this.#enter
    }
    return { on: this.#on, u: this.#draw(index) }
  }
}
