import { createHash } from 'node:crypto'
import { canonicalJson } from '../protocol/canonical-json.ts'

/** Cache of hashes, because hashing a whole config takes time. */
const known = new WeakMap<object, string>()

/** Adds the hash of an object to the cache. The object must not change afterwards. */
export function noteHash(value: object, hash: string): void {
  known.set(value, hash)
}

/**
 * Returns a hash of a config: 16 hex digits, equal for equal values in any order of keys. Keys with the value undefined
 * do not count. Throws for a value that nests deeper than 1,000 levels.
 */
export function configHash(value: unknown): string {
  const noted = typeof value === 'object' && value !== null ? known.get(value) : undefined
  if (noted !== undefined) return noted
  const text = canonicalJson(value)
  if (text === undefined) throw new RangeError('a config nests too deep')
  return createHash('sha256').update(text).digest('hex').slice(0, 16)
}
