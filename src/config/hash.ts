import { createHash } from 'node:crypto'
import { canonicalJson } from '../protocol/canonical-json.ts'

/**
 * A name for what a config says: 16 hex digits, the same for equal values whatever the order of their keys.
 * Keys without a value (undefined) do not count. Throws for a value that nests deeper than 1,000 levels.
 */
export function configHash(value: unknown): string {
  const text = canonicalJson(value)
  if (text === undefined) throw new RangeError('a config nests too deep')
  return createHash('sha256').update(text).digest('hex').slice(0, 16)
}
