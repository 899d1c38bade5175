import { createHash } from 'node:crypto'
import { canonicalJson } from '../protocol/canonical-json.ts'

/**
 * Returns the SHA-256 of a value's canonical JSON, in hex. All 64 digits: an agent chooses the hashed plan, and shorter
 * hashes allow two plans of equal hash.
 */
export function digestOf(value: unknown): string {
  const text = canonicalJson(value)
  if (text === undefined) throw new Error('the value nests too deep to be hashed')
  return createHash('sha256').update(text).digest('hex')
}
