import { createHash } from 'node:crypto'
import { canonicalJson } from '../protocol/canonical-json.ts'

/** Hashes computed before: hashing a whole config takes time. */
const known = new WeakMap<object, string>()

/** Notes the hash of an object that never changes again. */
export function noteHash(value: object, hash: string): void {
  known.set(value, hash)
}

/**
 * Returns a name for a config's content: 16 hex digits, equal for equal values whatever the order of keys. Keys with
 * the value undefined do not count. Throws for a value that nests deeper than 1,000 levels.
 */
export function configHash(value: unknown): string {
  const noted = typeof value === 'object' && value !== null ? known.get(value) : undefined
  if (noted !== undefined) return noted
  const text = canonicalJson(value)
  if (text === undefined) throw new RangeError('a config nests too deep')
  return createHash('sha256').update(text).digest('hex').slice(0, 16)
}
