import { createKeyedRandom } from '../../src/mesh/keyed-random.ts'

/**
 * When calls arrive that nobody coordinates, in milliseconds from the beginning: at random, independently of each other (a Poisson
 * process), `perSecond` of them in the long run, over `forMs`. The same seed gives the same arrivals.
 */
export function arrivals(perSecond: number, forMs: number, seed: number): Float64Array {
  const random = createKeyedRandom(seed)
  const due: number[] = []
  const meanGapMs = 1_000 / perSecond
  let at = 0
  for (;;) {
    at -= Math.log(1 - random(String(due.length), 'arrival')) * meanGapMs
    if (at >= forMs) return Float64Array.from(due)
    due.push(at)
  }
}
