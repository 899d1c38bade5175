import type { Millis } from '../../mesh/clock.ts'
import type { Dice } from '../../mesh/dice.ts'
import type { BreakerConfig } from './schema.ts'

/**
 * How long a breaker stays open: `open`, doubled with each opening in a row up to `maxOpen`, give or take
 * `jitter`. The jitter comes last, so that breakers that have reached the longest time do not fall into step.
 */
export class Backoff {
  readonly #config: Pick<BreakerConfig, 'open' | 'maxOpen' | 'jitter'>
  readonly #dice: Dice
  /** Openings so far: each has a draw of its own. */
  #openings = 0
  /** Openings since the last recovery that lasted. */
  #inARow = 0

  constructor(config: Pick<BreakerConfig, 'open' | 'maxOpen' | 'jitter'>, dice: Dice) {
    this.#config = config
    this.#dice = dice
  }

  /** How long to stay open this time, in milliseconds, at least 1. `owner`: whose breaker it is, for the dice. */
  next(owner: string): Millis {
    const { open, maxOpen, jitter } = this.#config
    // Past 2^31 every open time has met its maximum.
    const usualMs = Math.min(maxOpen, open * 2 ** Math.min(this.#inARow++, 31))
    const draw = this.#dice(`${owner}/${this.#openings++}`, 'breaker')
    return Math.max(1, Math.round(usualMs * (1 + jitter * (2 * draw - 1))))
  }

  reset(): void {
    this.#inARow = 0
  }
}
