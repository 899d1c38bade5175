/**
 * Chance as a keyed hash: the same key gives the same draw, whatever was drawn before.
 * Returns a number in [0, 1).
 */
export type Dice = (callKey: string, purpose: string) => number

const DRAWS = 2 ** 53

/**
 * Dice of a seed. Fields are length-prefixed, so that no two keys run together.
 * The hash is cyrb53 (two 32-bit multiply-xor lanes with a murmur3 finaliser), 53 bits wide.
 */
export function createDice(seed: number): Dice {
  return (callKey, purpose) =>
    hash53(`${purpose.length}:${purpose}${callKey.length}:${callKey}`, seed) / DRAWS
}

function hash53(text: string, seed: number): number {
  let high = 0xdeadbeef ^ seed
  let low = 0x41c6ce57 ^ seed
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i)
    high = Math.imul(high ^ unit, 2654435761)
    low = Math.imul(low ^ unit, 1597334677)
  }
  high = Math.imul(high ^ (high >>> 16), 2246822507) ^ Math.imul(low ^ (low >>> 13), 3266489909)
  low = Math.imul(low ^ (low >>> 16), 2246822507) ^ Math.imul(high ^ (high >>> 13), 3266489909)
  return 4294967296 * (2097151 & low) + (high >>> 0)
}
