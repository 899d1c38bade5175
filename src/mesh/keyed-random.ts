/** Returns a pseudo-random number in [0, 1). Equal keys give equal numbers, whatever was drawn before. */
export type KeyedRandom = (callKey: string, purpose: string) => number

/** A whole number from 0 to 2^64 − 1; from 2^53 on, where numbers are inexact, a text of decimal digits. */
export type Seed = number | string

const DRAWS = 2 ** 53

/**
 * Returns the random function of a seed. Fields are length-prefixed, so that different keys are always different texts.
 * The hash is cyrb53 (two 32-bit multiply-xor lanes with a murmur3 finaliser), 53 bits wide.
 */
export function createKeyedRandom(seed: Seed): KeyedRandom {
  const bits = BigInt.asUintN(64, BigInt(seed))
  // Different seeds give the two lanes different start values. A seed below 2^32 mixes the same bits into both lanes.
  const high = Number(bits & 0xffffffffn)
  const low = Number((bits & 0xffffffffn) ^ (bits >> 32n))
  return (callKey, purpose) =>
    hash53(`${purpose.length}:${purpose}${callKey.length}:${callKey}`, high, low) / DRAWS
}

function hash53(text: string, highSeed: number, lowSeed: number): number {
  let high = 0xdeadbeef ^ highSeed
  let low = 0x41c6ce57 ^ lowSeed
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i)
    high = Math.imul(high ^ unit, 2654435761)
    low = Math.imul(low ^ unit, 1597334677)
  }
  high = Math.imul(high ^ (high >>> 16), 2246822507) ^ Math.imul(low ^ (low >>> 13), 3266489909)
  low = Math.imul(low ^ (low >>> 16), 2246822507) ^ Math.imul(high ^ (high >>> 13), 3266489909)
  return 4294967296 * (2097151 & low) + (high >>> 0)
}
