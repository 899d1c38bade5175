import { createHash } from 'node:crypto'
import { canonicalJson } from '../protocol/canonical-json.ts'

/** Hashes that somebody has computed already: that of a whole config takes its time. */
const known = new WeakMap<object, string>()

/** Says what the hash of an object is, which nobody changes any more. */
export function noteHash(value: object, hash: string): void {
  known.set(value, hash)
}

/**
 * A name for what a config says: 16 hex digits, the same for equal values whatever the order of their keys.
 * Keys without a value (undefined) do not count. Throws for a value that nests deeper than 1,000 levels.
 */
export function configHash(value: unknown): string {
  const noted = typeof value === 'object' && value !== null ? known.get(value) : undefined
  if (noted !== undefined) return noted
  const text = canonicalJson(value)
  if (text === undefined) throw new RangeError('a config nests too deep')
  return createHash('sha256').update(text).digest('hex').slice(0, 16)
}
